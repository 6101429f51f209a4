"""Files that only root can have made, opened such that nothing else can be in their place.

The store is root's alone, so that a link, a FIFO or another's file in it means that somebody has
got in, or that it was copied from where users write. None of it is followed, waited for or read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from slurm_reclaim.errors import IntegrityError, StoreUnavailable


def open_private(path: Path, *, what: str = "", names: int = 1) -> int:
    """A descriptor to read from. `what` names it in messages, `names` is how many hard links it may
    have. Raises IntegrityError for what is no plain file that only we can write, FileNotFoundError,
    StoreUnavailable."""
    what = what or str(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        if kind := _not_plain(path):
            raise IntegrityError(f"{what} is {kind}") from None
        raise StoreUnavailable(f"{what}: {error.strerror}") from error
    try:
        if problem := not_private(os.fstat(fd), names):
            raise IntegrityError(f"{what} {problem}")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _not_plain(path: Path) -> str:
    """Of what can't be opened: a link, or a socket, say."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return ""
    if stat.S_ISREG(mode):
        return ""
    return "a symbolic link" if stat.S_ISLNK(mode) else "no plain file"


def not_private(facts: os.stat_result, names: int = 1) -> str:
    """What is wrong with a file of the store; "" where nothing is."""
    if not stat.S_ISREG(facts.st_mode):
        return "is no plain file"
    if facts.st_uid != os.geteuid():
        return f"belongs to uid {facts.st_uid}"
    if facts.st_mode & 0o022:
        return f"can be written by others ({stat.S_IMODE(facts.st_mode):04o})"
    if not 0 < facts.st_nlink <= names:
        return f"has {facts.st_nlink} names"
    return ""


def read_private(path: Path, most: int, *, what: str = "", names: int = 1) -> bytes:
    """All of it. Raises as open_private, and IntegrityError where it is longer than `most`."""
    with os.fdopen(open_private(path, what=what, names=names), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise IntegrityError(f"{what or path} has {size} bytes; at most {most} are read")
        try:
            return file.read() or b""
        except OSError as error:
            raise StoreUnavailable(f"{what or path}: {error.strerror}") from error
