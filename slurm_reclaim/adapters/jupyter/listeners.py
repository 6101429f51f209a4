"""Where a process listens, by the kernel's own tables.

A host or a port that somebody wrote into a file proves nothing. A socket does: it is listed as
listening in the network namespace of the agent, and the process holds it.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from slurm_reclaim.adapters.proc import sockdiag
from slurm_reclaim.adapters.proc.tree import socket_inode
from slurm_reclaim.errors import Unavailable

MOST_DESCRIPTORS = 4096
PATIENCE = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening TCP socket: `inode` is its own for as long as the node runs."""

    inode: int
    family: int
    address: str
    port: int

    @property
    def reached_at(self) -> tuple[str, int]:
        """Never the other family's loopback: that port may be another user's."""
        anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
        return anywhere.get(self.address, self.address), self.port


def tcp() -> dict[int, Listener]:
    """Every listening TCP socket of the agent's network namespace, by inode. OSError."""
    try:
        return {each.inode: _listener(each) for each in sockdiag.listening(PATIENCE)}
    except Unavailable as error:
        raise OSError(errno.EIO, error.message) from None


def _listener(each: sockdiag.Tcp) -> Listener:
    family = socket.AF_INET if len(each.local[0]) == 4 else socket.AF_INET6
    return Listener(each.inode, family, socket.inet_ntop(family, each.local[0]), each.port)


def sockets_of(process: Path) -> list[int]:
    """Inodes of the sockets that a process (`/proc/PID`) holds, by descriptor. Empty where that
    can't be seen."""
    try:
        with os.scandir(process / "fd") as entries:
            names = [entry.name for entry in itertools.islice(entries, MOST_DESCRIPTORS)]
    except OSError:
        return []
    inodes = []
    for name in sorted(names, key=lambda n: int(n)):
        try:
            target = os.readlink(process / "fd" / name)
        except OSError:
            continue
        if (inode := socket_inode(target)) is not None:
            inodes.append(inode)
    return inodes
