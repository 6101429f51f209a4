"""What a checkpoint says about itself, and what a node has to offer one."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import time
from functools import lru_cache
from pathlib import Path

import sh

from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.tree import Process
from slurm_reclaim.model.checkpoint import (
    MANIFEST_VERSION,
    Contents,
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


def cpu_flags_digest() -> str:
    """Short digest of the CPU's feature flags: a tree restored on a CPU without one of them dies
    of SIGILL, and the size of the saved registers must be equal (CRIU issue 3120)."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            flags = " ".join(sorted(line.split(":", 1)[1].split()))
            return hashlib.sha256(flags.encode()).hexdigest()[:16]
    return ""


def node_needs(criu: str, *, listening: tuple[str, ...]) -> Needs:
    """Asked before the freeze; what only the dump tells (memory, highest PID) is filled in after
    it."""
    uname = os.uname()
    return Needs(
        arch=uname.machine,
        kernel=uname.release,
        cpu_flags_digest=cpu_flags_digest(),
        criu=criu_version(criu),
        max_pid=0,
        memory=0,
        listening=listening,
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
        rights=rights,
    )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
