"""Where a process listens, by the kernel's own tables.

A host or a port that somebody wrote into a file proves nothing. A socket does: it is listed as
listening in the network namespace of the agent, and the process holds it.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_DESCRIPTORS = 4096

_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_LISTENING = 1 << 10  # TCPF_LISTEN
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_ID = "2s2s16s16sI8s"  # inet_diag_sockid: source port, peer's port, addresses, interface, cookie
_QUESTION = struct.Struct(f"=BBBBI{_ID}")  # inet_diag_req_v2
_ANSWER = struct.Struct(f"=BBBB{_ID}IIIII")  # inet_diag_msg


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
    """Every listening TCP socket of the agent's network namespace, by inode. Asked of the kernel by
    sock_diag(7): /proc/net/tcp walks a hash table that grows with the memory of the node. OSError.
    """
    found: dict[int, Listener] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _DIAG) as kernel:
        kernel.settimeout(1.0)
        for family in (socket.AF_INET, socket.AF_INET6):
            question = _QUESTION.pack(
                family, socket.IPPROTO_TCP, 0, 0, _LISTENING, b"", b"", b"", b"", 0, b""
            )
            size = _HEADER.size + len(question)
            kernel.send(_HEADER.pack(size, _BY_FAMILY, _DUMP, family, 0) + question)
            for answer in _answers(kernel):
                row = _ANSWER.unpack_from(answer)
                address = socket.inet_ntop(family, row[6][: 4 if family == socket.AF_INET else 16])
                port = int.from_bytes(row[4], "big")
                found[row[-1]] = Listener(row[-1], family, address, port)
    return found


def _answers(kernel: socket.socket) -> Iterator[bytes]:
    while True:
        packet = kernel.recv(1 << 16)
        while packet:
            size, kind, *_ = _HEADER.unpack_from(packet)
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -struct.unpack_from("=i", packet, _HEADER.size)[0]
                raise OSError(code, f"sock_diag: {os.strerror(code)}")
            yield packet[_HEADER.size : size]
            packet = packet[(size + 3) & ~3 :]


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
