"""The TCP sockets of this network namespace with their byte counters, by netlink (sock_diag(7)).

One dump gives what /proc/net/tcp does not: how much each connection has carried.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from slurm_reclaim.errors import Unavailable

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
# TCPDIAG_GETSOCK: the older request, but the one that goes through the kernel's table once for
# IPv4 and IPv6 together; that table is large however few sockets there are.
_GET = 18
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_INFO = 2  # INET_DIAG_INFO
LISTEN = 10
# All states but LISTEN, SYN_SENT, SYN_RECV, TIME_WAIT and CLOSED, in which nothing was carried or
# nobody holds the socket any more.
_CARRYING = (1 << 1) | (1 << 4) | (1 << 5) | (1 << 8) | (1 << 9) | (1 << 11)

_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBB48xII")  # inet_diag_req: family, -, -, extensions, id, states, -
_MESSAGE = struct.Struct("=BBBB2s2s16s16sI8sIIIII")  # inet_diag_msg
_OWNER, _OWNER_AT = struct.Struct("=II"), 64  # its last two: uid, inode
_ATTRIBUTE = struct.Struct("=HH")
_COUNTERS = struct.Struct("=QQ")  # tcp_info: bytes_acked, bytes_received
_COUNTERS_AT = 120
_MAPPED = bytes(10) + b"\xff\xff"  # ::ffff:0:0/96, how an IPv6 socket names an IPv4 peer

PATIENCE = 3.0  # seconds for a whole dump
_MOST_SOCKETS = 200_000


@dataclass(frozen=True, slots=True)
class Tcp:
    """`local` and `remote` are (address, port) in network order; `sent` and `received` bytes of
    its whole life, -1 where the kernel does not say; `unread` bytes that no process has read yet,
    of a listening socket the connections that nobody has accepted."""

    inode: int
    uid: int
    state: int
    local: tuple[bytes, bytes]
    remote: tuple[bytes, bytes]
    unread: int
    sent: int
    received: int

    def __str__(self) -> str:
        return f"{_shown(self.local)} from {_shown(self.remote)}"

    @property
    def port(self) -> int:
        return int.from_bytes(self.local[1], "big")


def _shown(end: tuple[bytes, bytes]) -> str:
    family = socket.AF_INET if len(end[0]) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, end[0])} port {int.from_bytes(end[1], 'big')}"


def tcp() -> Iterator[Tcp]:
    """Every TCP socket that carries or may carry something. Raises Unavailable."""
    return map(parsed, _messages(_CARRYING | 1 << LISTEN, PATIENCE))


def connections() -> dict[int, list[bytes]]:
    """Every TCP connection that somebody holds, by the uid of who made it and to be `parsed`: of a
    node's thousands only those of a few users are wanted. Raises Unavailable."""
    by_uid: dict[int, list[bytes]] = {}
    for message in _messages(_CARRYING, PATIENCE):
        uid, inode = _OWNER.unpack_from(message, _OWNER_AT)
        if inode:
            by_uid.setdefault(uid, []).append(message)
    return by_uid


def listening(patience: float) -> Iterator[Tcp]:
    """Every TCP socket that listens, within `patience` seconds. Raises Unavailable."""
    return map(parsed, _messages(1 << LISTEN, patience))


def _messages(states: int, patience: float) -> Iterator[bytes]:
    deadline = time.monotonic() + patience
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as link:
            link.settimeout(patience)
            yield from _dump(link, states, deadline)
    except (OSError, struct.error) as error:
        raise Unavailable(f"the kernel does not tell of its sockets: {error}") from None


def _dump(link: socket.socket, states: int, deadline: float) -> Iterator[bytes]:
    request = _REQUEST.pack(socket.AF_INET, 0, 0, 1 << (_INFO - 1), states, 0)
    link.send(_HEADER.pack(_HEADER.size + len(request), _GET, _DUMP, 1, 0) + request)
    seen = 0
    while True:
        data = link.recv(1 << 18)
        if time.monotonic() > deadline or seen > _MOST_SOCKETS:
            raise Unavailable("there are too many sockets to count")
        at = 0
        while at < len(data):
            size, kind, _, _, _ = _HEADER.unpack_from(data, at)
            if kind == _DONE:
                return
            if kind == _ERROR:
                (number,) = struct.unpack_from("=i", data, at + _HEADER.size)
                raise OSError(-number, os.strerror(-number))
            if size < _HEADER.size + _MESSAGE.size:
                raise struct.error("a message without length")
            seen += 1
            yield data[at + _HEADER.size : at + size]
            at += (size + 3) & ~3


def parsed(data: bytes) -> Tcp:
    """One message of the kernel's, without its header."""
    (family, state, _, _, sport, dport, src, dst, _, _, _, unread, _, uid, inode) = (
        _MESSAGE.unpack_from(data)
    )
    at = _MESSAGE.size
    sent = received = -1
    while at + 4 <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if kind == _INFO and length >= 4 + _COUNTERS_AT + _COUNTERS.size:
            sent, received = _COUNTERS.unpack_from(data, at + 4 + _COUNTERS_AT)
            break
        if length < 4:
            break
        at += (length + 3) & ~3
    v4 = family == socket.AF_INET
    local, remote = _address(src, v4), _address(dst, v4)
    return Tcp(inode, uid, state, (local, sport), (remote, dport), unread, sent, received)


def _address(raw: bytes, v4: bool) -> bytes:
    if v4:
        return raw[:4]
    return raw[12:] if raw.startswith(_MAPPED) else raw
