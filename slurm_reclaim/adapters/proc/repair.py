"""TCP connections that a dump has left in repair mode (TCP_REPAIR, tcp(7)).

CRIU switches it on to read a connection's state, and off again only where it lets the tree run on
itself. Ours is left stopped. A socket in repair mode sends nothing: neither what a continued tree
writes, nor the FIN or RST that tells the other side that a killed one is gone.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterable
from contextlib import suppress

from slurm_reclaim.adapters.proc.tree import PROC, Process

_PIDFD_GETFD = 438  # the same number on every architecture (Linux 5.6)
_TCP_REPAIR, _OFF = 19, 0
_syscall = ctypes.CDLL(None, use_errno=True).syscall


def end(processes: Iterable[Process]) -> int:
    """Switch it off on every socket of these processes; how many had it on. Needs CAP_NET_ADMIN.
    What has ended meanwhile is left out."""
    seen: set[str] = set()
    count = 0
    for process in processes:
        with suppress(OSError):
            pidfd = os.pidfd_open(process.pid)
            try:
                count += _end_of(process.pid, pidfd, seen)
            finally:
                os.close(pidfd)
    return count


def _end_of(pid: int, pidfd: int, seen: set[str]) -> int:
    base = PROC / str(pid) / "fd"
    count = 0
    for name in os.listdir(base):
        with suppress(OSError):
            target = os.readlink(base / name)
            if not target.startswith("socket:[") or target in seen:
                continue
            seen.add(target)
            fd = _syscall(_PIDFD_GETFD, pidfd, int(name), 0)
            if fd >= 0:
                with socket.socket(fileno=fd) as mine:
                    count += _switch_off(mine)
    return count


def _switch_off(mine: socket.socket) -> bool:
    if mine.family not in (socket.AF_INET, socket.AF_INET6) or mine.proto != socket.IPPROTO_TCP:
        return False
    if not mine.getsockopt(socket.IPPROTO_TCP, _TCP_REPAIR):
        return False
    mine.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _OFF)
    return True
