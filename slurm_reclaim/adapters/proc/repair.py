"""TCP connections that a dump has left in repair mode (TCP_REPAIR, tcp(7)), or a restore open.

CRIU switches it on to read a connection's state, and off again only where it lets the tree run on
itself. Ours is left stopped. A socket in repair mode sends nothing: neither what a continued tree
writes, nor the FIN or RST that tells the other side that a killed one is gone.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address

from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.tree import PROC, Process, descriptors, socket_inode

Ends = tuple[tuple[str, int], tuple[str, int]]  # of a connection: here and there
_PIDFD_GETFD = 438  # the same number on every architecture (Linux 5.6)
_TCP_REPAIR, _OFF = 19, 0
_syscall = ctypes.CDLL(None, use_errno=True).syscall


def end(processes: Iterable[Process]) -> int:
    """Before the tree goes on: switch it off on every socket of these processes; how many had it
    on. Needs CAP_NET_ADMIN. What has ended meanwhile is left out."""
    return sum(map(_switch_off, _in_repair(processes)))


def cut(processes: Iterable[Process]) -> int:
    """Before the tree is killed: have its end reset its connections to elsewhere; how many. Those
    within the host stay in repair mode: they go without a trace, and leave no port in TIME_WAIT
    that the restored tree would find taken."""
    return sum(map(_reset_when_closed, _in_repair(processes)))


def shut(processes: Iterable[Process], ends: Collection[Ends]) -> int:
    """Shut the sending half of those of their connections that have these ends; how many."""
    return sum(_shut(mine) for mine in _sockets(processes) if _ends(mine) in ends) if ends else 0


def _shut(mine: socket.socket) -> bool:
    with suppress(OSError):
        mine.shutdown(socket.SHUT_WR)
        return True
    return False


def _ends(mine: socket.socket) -> Ends | None:
    with suppress(OSError, ValueError):
        if mine.family in (socket.AF_INET, socket.AF_INET6):
            return _plain(mine.getsockname()), _plain(mine.getpeername())
    return None


def _plain(end: tuple[str, int]) -> tuple[str, int]:
    """IPv4 as such, also where it is told in IPv6."""
    address = ip_address(end[0])
    return str(getattr(address, "ipv4_mapped", None) or address), end[1]


def _in_repair(processes: Iterable[Process]) -> Iterator[socket.socket]:
    return (mine for mine in _sockets(processes) if _has_it_on(mine))


def _sockets(processes: Iterable[Process]) -> Iterator[socket.socket]:
    """Each once, as a descriptor of ours that is closed when the next is asked for."""
    seen: set[int] = set()
    for process in processes:
        try:
            pidfd = tree.pidfd(process.pid)
        except OSError:
            continue
        try:
            yield from _of(process.pid, pidfd, seen)
        except OSError:
            continue
        finally:
            os.close(pidfd)


def _of(pid: int, pidfd: int, seen: set[int]) -> Iterator[socket.socket]:
    for name, target in descriptors(PROC / str(pid)):
        inode = socket_inode(target)
        if inode is None or inode in seen:
            continue
        seen.add(inode)
        fd = _syscall(_PIDFD_GETFD, pidfd, int(name), 0)
        if fd >= 0:
            with socket.socket(fileno=fd) as mine:
                yield mine


def _has_it_on(mine: socket.socket) -> bool:
    if mine.family not in (socket.AF_INET, socket.AF_INET6) or mine.proto != socket.IPPROTO_TCP:
        return False
    try:
        return bool(mine.getsockopt(socket.IPPROTO_TCP, _TCP_REPAIR))
    except OSError:
        return False


def _switch_off(mine: socket.socket) -> bool:
    with suppress(OSError):
        mine.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _OFF)
        return True
    return False


def _reset_when_closed(mine: socket.socket) -> bool:
    with suppress(OSError, ValueError):
        here, there = (ip_address(end[0]) for end in (mine.getsockname(), mine.getpeername()))
        if here != there and not there.is_loopback:
            mine.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return _switch_off(mine)
    return False
