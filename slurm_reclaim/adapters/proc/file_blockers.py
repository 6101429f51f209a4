"""Open and mapped files that can't be saved, or could not be opened again: devices, files without
a name, and those that stay behind in the memory of the node."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping

from slurm_reclaim.adapters.proc.filesystems import place_of
from slurm_reclaim.adapters.proc.opened import Opened
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.printable import escaped

# Those that CRIU opens again by path: major numbers 1 (mem), 5 (tty, ptmx), 136-143 (pts)
_GOOD_MAJORS = {1, 5, *range(136, 144)}
# What an NFS client calls a file that was deleted while open.
_SILLY = re.compile(rb"/\.nfs[0-9a-fA-F]{8,}$")
# Named by job, step and node: no other run of the job has them.
_OF_THE_RUN = ("cgroup", "cgroup2")
_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")


def find(
    opened: Iterable[Opened],
    *,
    ghost_limit: int,
    saved: Collection[bytes],
    mounted: Mapping[bytes, str],
    devices: Collection[bytes] = (),
    mounts: Collection[int] = (),
) -> Iterator[Blocker]:
    """`saved`: folders whose contents are saved with the session; `mounted` and `mounts` (ids) as
    the session has them; `devices`: those that are seen to elsewhere."""
    for each in opened:
        if each.path in devices:
            continue
        inside = any(each.path.startswith(folder + b"/") for folder in saved)
        if each.denied:
            yield from _denied(each)
        elif each.facts is None:
            what = f"{each.holder} has {shown(each)} open, which its file server no longer knows"
            yield Blocker("stale-file", what, "close it")
        elif each.path == b"/secretmem":
            yield Blocker("secretmem", f"{each.holder} uses secret memory (memfd_secret)", "end it")
        elif mounted.get(place_of(each.path, mounted)) in _OF_THE_RUN:
            what = f"{each.holder} has {shown(each)} open, which is of this run of the job only"
            yield Blocker("cgroup-file", what, "close it, and open it again when it is needed")
        elif mounts and not each.mounts.issubset(mounts):
            yield Blocker(
                "outside-mount",
                f"{each.holder} has {shown(each)} open, which it got from outside of the session",
                "close it; where it is the job's output, write that to a home directory",
            )
        elif stat.S_ISCHR(each.facts.st_mode) or stat.S_ISBLK(each.facts.st_mode):
            yield from _device(each, each.facts)
        elif each.deleted:
            yield from _deleted(each, each.facts, ghost_limit, inside)
        elif _SILLY.search(each.path):
            what = f"{each.holder} holds {shown(each)}, deleted on an NFS file system"
            yield Blocker("deleted-file", what, "close the file that was deleted")
        elif not inside and stat.S_ISREG(each.facts.st_mode) and each.uses & {"w", "a"}:
            yield from _in_memory(each, mounted)


def shown(each: Opened) -> str:
    return escaped(each.path.decode("utf-8", "backslashreplace"))


def _denied(each: Opened) -> Iterator[Blocker]:
    """By its path its owner is asked; without one nobody can be."""
    if each.deleted or _SILLY.search(each.path):
        what = f"{each.holder} holds {shown(each)}, deleted where only its owner may look"
        yield Blocker("deleted-file", what, "close the file that was deleted")


def _device(each: Opened, facts: os.stat_result) -> Iterator[Blocker]:
    if each.path == b"/dev/fuse":
        what = f"{each.holder} serves a FUSE file system"
        yield Blocker("fuse-daemon", what, "unmount it (fusermount -u), or mount it outside")
    elif stat.S_ISBLK(facts.st_mode) or os.major(facts.st_rdev) not in _GOOD_MAJORS:
        yield Blocker("device", f"{each.holder} has {shown(each)} open", "close the device")


def _deleted(
    each: Opened, facts: os.stat_result, ghost_limit: int, inside: bool
) -> Iterator[Blocker]:
    if facts.st_nlink == 0 and facts.st_size > ghost_limit:
        yield Blocker(
            "deleted-file",
            f"{each.holder} holds {shown(each)} with {facts.st_size >> 20} MiB",
            "agent.ghost_limit bounds deleted files that are kept open",
        )
    elif facts.st_nlink > 0 and not (inside and each.mapped_only):
        # A named semaphore is such a mapping of /dev/shm, and comes back (seen with CRIU 4.2.1).
        yield Blocker(
            "deleted-link",
            f"{each.holder} holds {shown(each)}, deleted, but the file has another name",
            "which one can't be told: close it and open it by that name",
        )


def _in_memory(each: Opened, mounted: Mapping[bytes, str]) -> Iterator[Blocker]:
    """Not what is only read: on a node without disks every program lies in memory."""
    place = place_of(each.path, mounted)
    if place != b"/" and mounted.get(place) in _IN_MEMORY:
        yield Blocker(
            "file-in-memory",
            f"{each.holder} writes to {shown(each)}, which lies in this node's memory",
            "put it into a home or project directory, or into /dev/shm; a /tmp in memory is kept "
            "only where sessions have one of their own (session.private_tmp)",
        )
