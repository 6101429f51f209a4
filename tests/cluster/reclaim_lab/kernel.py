"""The few system calls that Python 3.10 does not offer."""

from __future__ import annotations

import ctypes
import os
import platform

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000

MNT_DETACH = 2

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203}

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def setns(path: str, kind: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(_libc.setns(fd, kind), f"enter {path}")
    finally:
        os.close(fd)


def mount(source: str, target: str, fstype: str = "", flags: int = 0, options: str = "") -> None:
    _checked(
        _libc.mount(
            source.encode(),
            target.encode(),
            fstype.encode() or None,
            ctypes.c_ulong(flags),
            options.encode() or None,
        ),
        f"mount {fstype or source} on {target}",
    )


def unmount(target: str) -> None:
    """Lazily: it goes when its last user goes."""
    _checked(_libc.umount2(target.encode(), MNT_DETACH), f"unmount {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    machine = platform.machine()
    if machine not in _PIVOT_ROOT:
        raise OSError(f"pivot_root: no system call number known for {machine}")
    number = _PIVOT_ROOT[machine]
    _checked(_libc.syscall(number, new_root.encode(), put_old.encode()), "pivot_root")
