"""Where a process listens, by the kernel's own tables.

A host or a port that somebody wrote into a file proves nothing. A socket does: it is listed as
listening in the network namespace of the agent, and the process holds it.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

MOST_DESCRIPTORS = 4096
MOST_LISTENERS = 65536

_LISTEN = "0A"
_TABLES = ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6"))
_NET = Path("/proc/thread-self/net")


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
    found = {}
    for family, name in _TABLES:
        if not (_NET / name).exists():
            continue  # a kernel without IPv6
        with open(_NET / name, encoding="ascii") as table:
            next(table, "")
            for line in itertools.islice(table, MOST_LISTENERS):
                row = line.split()
                if len(row) < 10 or row[3] != _LISTEN:
                    break  # the kernel lists those that listen first
                listener = _listener(family, row)
                found[listener.inode] = listener
    return found


def _listener(family: int, row: list[str]) -> Listener:
    address, _, port = row[1].partition(":")
    packed = b"".join(
        int(address[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(address), 8)
    )
    return Listener(int(row[9]), family, socket.inet_ntop(family, packed), int(port, 16))


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
        if target.startswith("socket:["):
            inodes.append(int(target[8:-1]))
    return inodes
