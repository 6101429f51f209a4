"""What a checkpoint says about itself, and what a node has to offer one."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import time
from functools import lru_cache

import sh

from slurm_reclaim.adapters.criu import processor
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.tree import Process
from slurm_reclaim.model.checkpoint import (
    MANIFEST_VERSION,
    Contents,
    File,
    Held,
    Manifest,
    Needs,
    OutputFile,
)
from slurm_reclaim.model.node_session import NodeSession


def criu_version(criu: str) -> str:
    """`4.2.1`, or empty where CRIU can't be run. Each binary is asked once."""
    try:
        facts = os.stat(shutil.which(criu) or criu)
        return _version(criu, facts.st_dev, facts.st_ino, facts.st_mtime_ns)
    except (sh.CommandNotFound, sh.ErrorReturnCode, OSError):
        return ""


@lru_cache(maxsize=4)
def _version(criu: str, *_identity: int) -> str:
    text = str(sh.Command(criu)("--version", _env={"PATH": "/usr/sbin:/usr/bin"}))
    match = re.search(r"Version:\s*(\S+)", text)
    return match[1] if match else ""


def node_needs(criu: str) -> Needs:
    """Asked before the freeze; what only the dump tells is filled in after it."""
    uname = os.uname()
    return Needs(
        arch=uname.machine,
        kernel=uname.release,
        criu=criu_version(criu),
        max_pid=0,
        memory=0,
        cpu_flags=processor.flags(),
        xsave=processor.xsave_size(criu),
    )


def describe(
    *,
    session: NodeSession,
    root: Process,
    node: str,
    reason: str,
    clocks: tuple[int, int],
    contents: Contents,
    outputs: tuple[OutputFile, ...],
    needs: Needs,
    processes: int,
    private_tmp: bool,
    files: tuple[File, ...],
    rights: tuple[Held, ...],
) -> Manifest:
    owner = tree.credentials(root)
    return Manifest(
        version=MANIFEST_VERSION,
        session=session.session,
        restarts=session.restarts,
        job_id=session.job_id,
        uid=session.uid,
        gid=owner.gid,
        user=_user(session.uid),
        node=node,
        created=time.time(),
        reason=reason,
        root_pid=root.inner,
        credentials=owner,
        monotonic=clocks[0],
        boottime=clocks[1],
        seccomp=root.status.get("Seccomp") == "2",
        private_tmp=private_tmp,
        contents=contents,
        outputs=outputs,
        needs=needs,
        processes=processes,
        files=files,
        rights=rights,
    )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
