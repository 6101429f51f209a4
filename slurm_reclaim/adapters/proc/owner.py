"""Reaching what belongs to a session's owner with the owner's rights.

Root opens no path below a directory that a user can write. A thread that has taken the owner's
rights may: the kernel then checks every step as if it were the owner. It is a thread and not a
forked child because the agent looks every few seconds at every session, and a fork of a threaded
Python process costs more than all the rest of the look.

The system calls are made directly, as the C library's functions would change all threads. The real
and the saved user id stay root's, so that the owner can't send signals to the agent.
"""

from __future__ import annotations

import ctypes
import os
import platform

from slurm_reclaim.model.checkpoint import Credentials

# machine -> setresuid, setresgid, setgroups (asm/unistd_64.h)
_CALLS = {"x86_64": (117, 119, 116), "aarch64": (147, 149, 159), "ppc64le": (164, 169, 81)}
_OPENAT2 = 437  # everywhere
_NO_MAGICLINKS = 0x02  # RESOLVE_NO_MAGICLINKS
_IN_ROOT = 0x10  # RESOLVE_IN_ROOT
_QUIETLY = os.O_NONBLOCK | os.O_NOCTTY

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    ]


def _call(number: int, *words: object) -> int:
    done: int = _libc.syscall(ctypes.c_long(number), *words)
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return done


def become(who: Credentials) -> None:
    """Take the owner's rights in this thread alone, which is to end with them: it must do nothing
    as root any more. OSError: the thread has fewer rights than before at most, and must end.
    Without root there is nothing to give up."""
    if os.geteuid() != 0:
        return
    calls = _CALLS.get(platform.machine())
    if calls is None:
        raise OSError(f"rights can't be given up on {platform.machine()}")
    setresuid, setresgid, setgroups = calls
    groups = (ctypes.c_uint32 * len(who.groups))(*who.groups)
    _call(setgroups, ctypes.c_long(len(who.groups)), groups)
    same = ctypes.c_long(-1)
    _call(setresgid, same, ctypes.c_long(who.gid), same)
    _call(setresuid, same, ctypes.c_long(who.uid), same)


def open_within(root: int, path: str, flags: int) -> int:
    """A descriptor of `path` as a process sees it whose root directory is open as `root`: links
    are followed inside of it. Never waits for a FIFO, follows no link at the end. OSError."""
    how = _OpenHow(
        flags | os.O_CLOEXEC | os.O_NOFOLLOW | (0 if flags & os.O_PATH else _QUIETLY),
        0,
        _IN_ROOT | _NO_MAGICLINKS,
    )
    return _call(
        _OPENAT2,
        ctypes.c_long(root),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )


def read_bounded(fd: int, most: int) -> bytes:
    """Up to `most` bytes from a descriptor."""
    parts: list[bytes] = []
    left = most
    while left > 0 and (part := os.read(fd, min(left, 65536))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
