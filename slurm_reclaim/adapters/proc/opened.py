"""The files that a session has open or mapped, as the kernel shows them. No path is opened: what
is behind a descriptor is reached through /proc, which leads to the file itself."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from slurm_reclaim.adapters.proc.tree import PROC, Process

_DELETED = b" (deleted)"
_O_PATH = 0o10000000
_MOST_FLAGS = 4096  # bytes of an fdinfo: that of an epoll has a line for each file
_MOST_MAPS = 16 << 20
_GONE = (FileNotFoundError, ProcessLookupError)


@dataclass(slots=True)
class Opened:
    """`path` as the kernel has it, without its mark where it is `deleted`; `uses` are the letters
    of model File; `facts` of the file itself, None where it can't be told (a server forgot it);
    `mapped_only`: no descriptor leads to it."""

    holder: Process
    path: bytes
    deleted: bool
    facts: os.stat_result | None
    uses: set[str] = field(default_factory=set)
    mapped_only: bool = True


Key = tuple[bytes, int, int]


def files(tree: Iterable[Process]) -> list[Opened]:
    """Each once, with all its uses: whatever has a path, devices and directories among them."""
    found: dict[Key, Opened] = {}
    for process in tree:
        for path, facts, uses in _of(process):
            key = (path, facts.st_dev, facts.st_ino) if facts is not None else (path, 0, 0)
            known = found.get(key)
            if known is None:
                deleted = path.endswith(_DELETED) and (facts is None or not _there(path, facts))
                name = path.removesuffix(_DELETED) if deleted else path
                known = found[key] = Opened(process, name, deleted, facts)
            known.uses |= uses
            known.mapped_only = known.mapped_only and "m" in uses
    return list(found.values())


def _there(path: bytes, facts: os.stat_result) -> bool:
    """Whether a file is really called so. Below a directory of a user root looks at no path: the
    mark is then believed."""
    return facts.st_nlink > 0 and facts.st_uid == 0 and os.path.exists(path)


def _of(process: Process) -> Iterator[tuple[bytes, os.stat_result | None, set[str]]]:
    base = os.fsencode(f"{PROC}/{process.pid}")
    try:
        numbers = os.listdir(base + b"/fd")
    except _GONE:
        return
    for number in numbers:
        with suppress(*_GONE):
            path = os.readlink(base + b"/fd/" + number)
            if path.startswith(b"/"):
                flags = _flags(base + b"/fdinfo/" + number)
                yield path, _facts(base + b"/fd/" + number), _uses(flags)
    for name, path, uses in _mapped(base):
        with suppress(*_GONE):
            yield path, _facts(base + b"/map_files/" + name), uses


def _facts(link: bytes) -> os.stat_result | None:
    try:
        return os.stat(link)
    except _GONE:
        raise
    except OSError:
        return None


def _flags(path: bytes) -> int:
    fd = os.open(path, os.O_RDONLY)
    try:
        text = os.read(fd, _MOST_FLAGS)
    finally:
        os.close(fd)
    _, _, rest = text.partition(b"flags:\t")
    return int(rest.split(None, 1)[0], 8)


def _uses(flags: int) -> set[str]:
    if flags & _O_PATH:
        return set()
    return set(letters(flags))


def letters(flags: int) -> str:
    """Of open(2) flags, as model File has them."""
    write = "a" if flags & os.O_APPEND else "w"
    return {os.O_RDONLY: "r", os.O_WRONLY: write, os.O_RDWR: f"r{write}"}.get(
        flags & os.O_ACCMODE, ""
    )


def _mapped(base: bytes) -> Iterator[tuple[bytes, bytes, set[str]]]:
    """(range, path, uses) of one mapping of each file: all mappings of one are alike but for what
    may be done with them."""
    try:
        with open(base + b"/maps", "rb") as file:
            text = file.read(_MOST_MAPS)
    except (*_GONE, PermissionError):
        return
    found: dict[tuple[bytes, bytes], tuple[bytes, set[str]]] = {}
    for line in text.split(b"\n"):
        words = line.split(None, 5)
        if len(words) < 6 or words[4] == b"0" or not words[5].startswith(b"/"):
            continue
        known = found.setdefault((words[3], words[4]), (words[0], {"m"}))[1]
        rights = words[1]
        known |= {"x"} if rights[2:3] == b"x" else set()
        known |= {"r", "w"} if rights[3:4] == b"s" and rights[1:2] == b"w" else {"r"}
    for name, uses in found.values():
        # maps has line ends in names as \012, map_files has them as they are
        start, _, end = name.partition(b"-")
        name = b"%x-%x" % (int(start, 16), int(end, 16))
        with suppress(*_GONE):
            path = os.readlink(base + b"/map_files/" + name)
            if path.startswith(b"/") and not _of_no_file_system(path):
                yield name, path, uses


def _of_no_file_system(path: bytes) -> bool:
    """Shared anonymous memory, memfds and System V memory are files inside the kernel only."""
    return path.startswith((b"/memfd:", b"/SYSV", b"/dev/zero", b"/anon_hugepage"))


def regular(facts: os.stat_result | None) -> bool:
    return facts is not None and stat.S_ISREG(facts.st_mode)
