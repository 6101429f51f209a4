"""Looks at files as their owner: a program of its own, and a few functions for the agent, too.

Below a directory that users can write to, root opens no path; and on a root-squashed file system
it can't. So the agent runs this text through reclaim-exec as the session's user, in the session's
mount namespace (files.py). Standard library only, nothing of ours: it is passed as text. It starts
while a session waits, so that it imports little: json and hashlib would double its time.

Standard input: a list of (path, access, wants content, locks) by marshal, of the interpreter that
runs both; the path is bytes, and access is of the letters `r` and `w`. Standard output: a JSON list
in the same order of {"error"} or {"size", "mode", "mtime", "may", "build_id", "digest", "locked"};
`error` is an errno, `may` whether the access is allowed.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import stat
import struct
import sys
import time
from _blake2 import blake2b  # hashlib's own, without OpenSSL

_HEAD = 64  # bytes
_HEADER = 40  # bytes of a program header that are looked at
_MOST_NOTES = 1 << 16
_PIECE = 64 << 10
_SAMPLES = 8
_ATTEMPTS, _PAUSE = 5, 0.3  # seconds
_FLOCK, _OFD_GETLK = "hhqqi4x", 36  # struct flock of 64 bits
_NOTE, _GNU_BUILD_ID = 4, 3


def build_id(fd: int) -> str:
    """The GNU build-id (hex) of an ELF file of 64 bits, else ""."""
    head = os.pread(fd, _HEAD, 0)
    if head[:6] != b"\x7fELF\x02\x01":
        return ""
    try:
        (table,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        headers = os.pread(fd, min(size * count, _MOST_NOTES), table)
        for at in range(0, len(headers) - _HEADER + 1, max(size, _HEADER)):
            kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", headers, at)
            if kind == _NOTE and length <= _MOST_NOTES:
                found = _note(os.pread(fd, length, start))
                if found:
                    return found
    except (struct.error, OverflowError, OSError):  # it leads beyond everything
        pass
    return ""


def _note(notes: bytes) -> str:
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        name_at = at + 12
        at = name_at + (name_size + 3 & ~3)
        if kind == _GNU_BUILD_ID and notes[name_at : name_at + name_size] == b"GNU\0":
            return notes[at : at + size].hex()
        at += size + 3 & ~3
    return ""


def sampled(fd: int, size: int) -> str:
    """Digest (hex) of both ends of a file and of places between them: what is replaced by another
    version differs there, and a library of a gigabyte is not read through."""
    digest = blake2b(digest_size=16)
    for number in range(_SAMPLES + 2):
        digest.update(os.pread(fd, _PIECE, max(0, size - _PIECE) * number // (_SAMPLES + 1)))
    return digest.hexdigest()


def locked(path: bytes, access: str, locks: list[str]) -> bool:
    """Whether another process keeps the session from one of its locks, and goes on doing so: many
    are held for a moment only."""
    flags = os.O_RDWR if "w" in access and "r" in access else os.O_WRONLY if access == "w" else 0
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        for attempt in range(_ATTEMPTS):
            if not any(_refused(fd, *text.split()) for text in locks):
                return False
            if attempt < _ATTEMPTS - 1:
                time.sleep(_PAUSE)
        return True
    finally:
        os.close(fd)


def _refused(fd: int, kind: str, how: str, first: str, last: str) -> bool:
    if kind == "flock":
        try:
            fcntl.flock(fd, (fcntl.LOCK_EX if how == "write" else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            fcntl.flock(fd, fcntl.LOCK_UN)
        except BlockingIOError:
            return True
        except OSError:
            pass  # a file system without locks: CRIU is to say
        return False
    start = int(first)
    length = 0 if last == "EOF" else int(last) - start + 1
    wanted = fcntl.F_WRLCK if how == "write" else fcntl.F_RDLCK
    try:
        asked = struct.pack(_FLOCK, wanted, os.SEEK_SET, start, length, 0)
        found = fcntl.fcntl(fd, _OFD_GETLK, asked)
        return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)
    except OSError:
        return False


def look(path: bytes, access: str, content: bool, locks: list[str]) -> dict[str, object]:
    """What is at `path` now."""
    try:
        seen = os.stat(path)
        wanted = (os.R_OK if "r" in access else 0) | (os.W_OK if "w" in access else 0)
        found: dict[str, object] = {
            "size": seen.st_size,
            "mode": seen.st_mode,
            "mtime": seen.st_mtime_ns,
            "may": os.access(path, wanted, effective_ids=True),
        }
        if locks and stat.S_ISREG(seen.st_mode) and found["may"]:
            found["locked"] = locked(path, access, locks)
        if content and stat.S_ISREG(seen.st_mode) and found["may"]:
            # It may have become a FIFO meanwhile.
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                found["build_id"] = build_id(fd)
                if not found["build_id"]:
                    found["digest"] = sampled(fd, seen.st_size)
            finally:
                os.close(fd)
        return found
    except OSError as error:
        return {"error": error.errno}
    except ValueError:  # a NUL in the name
        return {"error": 22}


def as_json(found: dict[str, object]) -> str:
    """Of numbers, truth values and hexadecimal text."""
    values = (
        f'"{key}":"{value}"' if isinstance(value, str) else f'"{key}":{value}'.lower()
        for key, value in found.items()
    )
    return f"{{{','.join(values)}}}"


if __name__ == "__main__":
    asked = marshal.load(sys.stdin.buffer)
    sys.stdout.write(f"[{','.join(as_json(look(*each)) for each in asked)}]")
