"""What a lab needs of the machine itself, looked at before minutes of building."""

from __future__ import annotations

import os
from pathlib import Path

from reclaim_lab import cgroups
from reclaim_lab.errors import LabError
from reclaim_lab.shell import run


def check() -> None:
    """Raises LabError."""
    refuse_chroot()
    cgroups.version()


def refuse_chroot() -> None:
    """A node's boot refuses one, too (`node_boot`): what is sent to it would land elsewhere.

    Mounts are compared, not directories: a chroot may be the machine's own root, bound elsewhere.
    """
    # A file of the namespace that is entered lets nsenter go to the root of that namespace.
    entered = run(
        ["nsenter", "--mount=/proc/self/ns/mnt", "/bin/sh", "-c",
         "exec 3</; cat /proc/$$/fdinfo/3"],
        doing="looking at the root of this mount namespace",
    )  # fmt: skip
    handle = os.open("/", os.O_RDONLY)
    try:
        ours = Path(f"/proc/self/fdinfo/{handle}").read_text()
    finally:
        os.close(handle)
    if _mount(entered) != _mount(ours):
        raise LabError(
            "this is a chroot: a lab needs the root of its mount namespace to itself. "
            "Use a virtual machine, or a container that may mount and make cgroups"
        )


def _mount(fdinfo: str) -> str:
    return next(line for line in fdinfo.splitlines() if line.startswith("mnt_id"))
