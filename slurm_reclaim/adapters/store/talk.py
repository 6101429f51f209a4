"""How the agent and its capture and serve programs talk: one JSON message a packet over a socket
pair, with a descriptor where there is something to read from or write to."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from slurm_reclaim.adapters.descriptors import allow_many
from slurm_reclaim.adapters.in_memory import file_of
from slurm_reclaim.errors import ReclaimError

_LARGEST = 1 << 17
_PIPE = 1 << 20


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


def send_large(end: socket.socket, message: dict[str, Any]) -> None:
    """As a file in memory, since a packet has its limits. Raises Hangup."""
    with file_of(json.dumps(message).encode(), "orders") as file:
        send(end, {}, file.fileno())


def receive_large(end: socket.socket) -> dict[str, Any]:
    """What `send_large` sent, or `send`: an agent from before an upgrade. Raises Hangup."""
    message, fd = receive(end)
    if fd is None:
        return message
    with os.fdopen(fd, "rb") as file:
        orders: dict[str, Any] = json.load(file)
    return orders


def receive(end: socket.socket) -> tuple[dict[str, Any], int | None]:
    """The next message, and the descriptor that came with it. Raises Hangup."""
    try:
        raw, fds, flags, _ = socket.recv_fds(end, _LARGEST, 1)
    except ConnectionResetError as error:
        raise Hangup from error
    if not raw:
        for fd in fds:
            os.close(fd)
        raise Hangup
    if flags & socket.MSG_TRUNC:
        raise OSError(errno.EMSGSIZE, f"a message of more than {_LARGEST} bytes")
    return json.loads(raw), (fds[0] if fds else None)


def widen(pipe: int) -> None:
    """Fewer turns for what is large."""
    # refused where the owner's share of pipe memory is used up: slower, not wrong
    with suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)


class Program(Protocol):
    def run(self) -> None: ...


def run(program: Callable[[socket.socket, socket.socket, dict[str, Any]], Program]) -> None:
    """The main function of both programs: made with the listening socket, the agent's end and its
    first message. What goes wrong is told to the agent."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    agent = socket.socket(fileno=int(sys.argv[2]))
    allow_many()
    try:
        orders = receive_large(agent)
        program(listening, agent, orders).run()
    except Hangup:
        raise SystemExit("the agent is gone") from None
    except (ReclaimError, OSError) as error:
        said = error.message if isinstance(error, ReclaimError) else error.strerror or str(error)
        send(agent, {"error": said, "kind": type(error).__name__})
        raise SystemExit(1) from None
