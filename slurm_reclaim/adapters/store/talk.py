"""How the agent and its capture and serve programs talk: one JSON message a packet over a socket
pair, with a descriptor where there is something to read from or write to."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

_LARGEST = 1 << 17


class Hangup(Exception):
    """The other side is gone."""


def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LARGEST)
    return ours, theirs


def send(end: socket.socket, message: dict[str, Any], fd: int | None = None) -> None:
    """Raises Hangup."""
    raw = json.dumps(message).encode()
    try:
        if fd is None:
            end.send(raw)
        else:
            socket.send_fds(end, [raw], [fd])
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Hangup from error


def receive(end: socket.socket) -> tuple[dict[str, Any], int | None]:
    """The next message, and the descriptor that came with it. Raises Hangup."""
    try:
        raw, fds, _, _ = socket.recv_fds(end, _LARGEST, 1)
    except ConnectionResetError as error:
        raise Hangup from error
    if not raw:
        for fd in fds:
            os.close(fd)
        raise Hangup
    return json.loads(raw), (fds[0] if fds else None)
