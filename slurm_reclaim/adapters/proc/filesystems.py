"""Which file systems are mounted where, and what a node has of huge pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from slurm_reclaim.adapters.proc.tree import PROC

_HUGEPAGES = Path("/sys/kernel/mm/hugepages")
_MOST = 300  # a node that has more (one automount for each user, say) does not tell them all

# The kernel's own, those of containers and packages, and those in memory, which hold nothing that
# is the same on two nodes.
_NOT_TOLD = (
    "binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs fusectl hugetlbfs "
    "mqueue nsfs overlay proc pstore ramfs rootfs rpc_pipefs securityfs selinuxfs squashfs sysfs "
    "tmpfs tracefs"
)


def mounted(pid: int | str = "self") -> dict[bytes, str]:
    """Mount point -> type, as the process sees them; of several at one place the last, which lies
    on top. Empty where it is gone."""
    found: dict[bytes, str] = {}
    with suppress(OSError):
        for line in (PROC / str(pid) / "mountinfo").read_bytes().split(b"\n"):
            before, dash, after = line.partition(b" - ")
            words = before.split(b" ")
            if dash and len(words) > 4:
                kind = after.split(b" ")[0].decode(errors="backslashreplace")
                found[_unescaped(words[4])] = kind
    return found


def mount_ids(pid: int) -> frozenset[int]:
    """Of all mounts of the process's namespace, as fdinfo names them; empty where it is gone."""
    found = frozenset[int]()
    with suppress(OSError, ValueError):
        text = (PROC / str(pid) / "mountinfo").read_bytes()
        found = frozenset(int(line.split(b" ", 1)[0]) for line in text.splitlines())
    return found


def _unescaped(path: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), path)


def _told(point: bytes, kind: str) -> str:
    """Not where the point's name has no UTF-8: then the node of the restore is to see by itself."""
    try:
        return "" if kind in _NOT_TOLD.split() or point == b"/" else f"{point.decode()} {kind}"
    except UnicodeDecodeError:
        return ""


def places() -> tuple[str, ...] | None:
    """`PLACE TYPE` of every file system of the node that may hold a session's files, sorted; None
    where they are too many."""
    found = {_told(point, kind) for point, kind in mounted().items()} - {""}
    return tuple(sorted(found)) if len(found) <= _MOST else None


def place_of(path: bytes, points: Mapping[bytes, str]) -> bytes:
    """The mount point that a path lies below."""
    at = path
    while at not in points and at not in (b"/", b""):
        at = at.rpartition(b"/")[0] or b"/"
    return at


def places_of(paths: Iterable[bytes], points: Mapping[bytes, str]) -> tuple[str, ...]:
    """`PLACE TYPE` of the file systems that these paths lie on, sorted; without `/`, and without
    those that every node has of its own."""
    found = {place_of(path, points) for path in paths}
    told = {_told(point, points[point]) for point in found if point in points}
    return tuple(sorted(told - {""}))


def hugepages(what: str) -> int:
    """Bytes in huge pages of every size: `nr_hugepages`, all, or `free_hugepages`."""
    total = 0
    with suppress(OSError, ValueError):
        for folder in _HUGEPAGES.iterdir():
            size = int(folder.name.removeprefix("hugepages-").removesuffix("kB")) << 10
            total += size * int((folder / what).read_text())
    return total
