"""The files that a session has open or mapped, as the kernel shows them. No path is opened: what
is behind a descriptor is reached through /proc, which leads to the file itself."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from slurm_reclaim.adapters.proc.tree import PROC, Process

_DELETED = b" (deleted)"
_O_PATH = 0o10000000
_LOCK = re.compile(
    rb"^lock:\t\d+: (FLOCK|POSIX|OFDLCK) +\S+ +(READ|WRITE) +\S+ \S+ (\d+) (\d+|EOF)$", re.M
)
_ROWS = (b"flags:\t", b"mnt_id:\t")
_MOST_FLAGS = 4096  # bytes of an fdinfo: that of an epoll has a line for each file
_MOST_MAPS = 16 << 20
_GONE = (FileNotFoundError, ProcessLookupError)


@dataclass(slots=True)
class Opened:
    """`path` as the kernel has it, without its mark where it is `deleted`; `uses` are the letters
    of model File, and `locks` its locks; `facts` of the file itself, None where they can't be told:
    a server forgot it, or root is `denied` it (another user's FUSE mount, Kerberos without a
    ticket) and only its owner can tell; `mapped_only`: no descriptor leads to it; `mounts`: the ids
    of those that the descriptors were opened on."""

    holder: Process
    path: bytes
    deleted: bool
    facts: os.stat_result | None
    uses: set[str] = field(default_factory=set)
    locks: set[str] = field(default_factory=set)
    mapped_only: bool = True
    denied: bool = False
    mounts: set[int] = field(default_factory=set)


Key = tuple[bytes, int, int]


@dataclass(frozen=True, slots=True)
class _Way:
    """One descriptor or mapping that leads to a file."""

    path: bytes
    link: bytes
    uses: set[str]
    locks: set[str] = field(default_factory=set)
    mapped: bool = False
    mount: int | None = None


def files(tree: Iterable[Process]) -> list[Opened]:
    """Each once, with all its uses: whatever has a path, devices and directories among them."""
    found: dict[Key, Opened] = {}
    for process in tree:
        base = os.fsencode(f"{PROC}/{process.pid}")
        for way in (*_descriptors(base), *_mapped(base)):
            try:
                facts, denied = _facts(way.link)
            except _GONE:
                continue
            key = (way.path, facts.st_dev, facts.st_ino) if facts is not None else (way.path, 0, 0)
            known = found.get(key)
            if known is None:
                # The mark is believed: below a directory of a user root looks at no path.
                name = way.path.removesuffix(_DELETED)
                known = Opened(process, name, name != way.path, facts, denied=denied)
                found[key] = known
            known.uses |= way.uses
            known.locks |= way.locks
            known.mapped_only = known.mapped_only and way.mapped
            known.mounts |= {way.mount} if way.mount is not None else set()
    return list(found.values())


def _descriptors(base: bytes) -> Iterator[_Way]:
    try:
        numbers = os.listdir(base + b"/fd")
    except _GONE:
        return
    for number in numbers:
        with suppress(*_GONE):
            link = base + b"/fd/" + number
            path = _target(link)
            if path.startswith(b"/"):
                yield _descriptor(path, link, base + b"/fdinfo/" + number)


def _target(link: bytes) -> bytes:
    """Empty where the path is too long to be told, which is a blocker (descriptor_blockers)."""
    try:
        return os.readlink(link)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return b""
        raise


def _facts(link: bytes) -> tuple[os.stat_result | None, bool]:
    """And whether they were denied."""
    try:
        return os.stat(link), False
    except _GONE:
        raise
    except PermissionError:
        return None, True
    except OSError:
        return None, False


def _descriptor(path: bytes, link: bytes, info: bytes) -> _Way:
    fd = os.open(info, os.O_RDONLY)
    try:
        text = os.read(fd, _MOST_FLAGS)
    finally:
        os.close(fd)
    flags, mount = (text.partition(name)[2].split(None, 1)[0] for name in _ROWS)
    # A memfd lies on a mount of the kernel's that no namespace shows, and is of the session.
    where = None if _of_no_file_system(path) else int(mount)
    return _Way(path, link, _uses(int(flags, 8)), _locks(text), mount=where)


def _locks(text: bytes) -> set[str]:
    """Those that CRIU waits for until it gets them again; a lease is none."""
    locks = set()
    for match in _LOCK.finditer(text):
        kind, how, first, last = (word.decode() for word in match.groups())
        locks.add(f"{'flock' if kind == 'FLOCK' else 'range'} {how.lower()} {first} {last}")
    return locks


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


def _mapped(base: bytes) -> Iterator[_Way]:
    """One mapping of each file: all of one are alike but for what may be done with them."""
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
            link = base + b"/map_files/" + name
            path = _target(link)
            if path.startswith(b"/") and not _of_no_file_system(path):
                yield _Way(path, link, uses, mapped=True)


def _of_no_file_system(path: bytes) -> bool:
    """Shared anonymous memory, memfds, System V memory and rings of io_setup(2) are files inside
    the kernel only."""
    return path.startswith((b"/memfd:", b"/SYSV", b"/dev/zero", b"/anon_hugepage", b"/[aio]"))


def has_a_path(each: Opened) -> bool:
    """Whether it is a regular file, or may be one, that is opened again by its path."""
    regular = each.denied if each.facts is None else stat.S_ISREG(each.facts.st_mode)
    return regular and not each.deleted
