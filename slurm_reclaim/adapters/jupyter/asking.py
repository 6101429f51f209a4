"""One question to a Jupyter server: connect, ask, close; bounded in time and bytes.

Whatever listens there may be hostile. Nothing of the environment is used (no proxies), no redirect
is followed, nothing is kept open: a connection that stays would be one to outside of the session
in its checkpoint.
"""

from __future__ import annotations

import http.client
import io
import os
import re
import socket
import ssl
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import msgspec

from slurm_reclaim.adapters.jupyter.listeners import Listener
from slurm_reclaim.adapters.proc.owner import open_within

MOST_BYTES = 512 << 10
IDLE_STATES = {"idle", "starting", "restarting", "autorestarting", "terminating", "dead"}

_STATE = re.compile(r"^[a-z_]{1,20}$")


class NoAnswer(Exception):
    """Why a server can't be asked, as people read it."""


class Refused(NoAnswer):
    """The server does not let us in: 401, 403."""


class KernelState(msgspec.Struct, frozen=True):
    """A kernel as /api/kernels lists it."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z_-]{1,64}$")]
    execution_state: str | None
    last_activity: Annotated[datetime, msgspec.Meta(tz=True)]

    def __str__(self) -> str:
        return f"kernel {self.id[:6]}"

    @property
    def busy(self) -> bool:
        return self.execution_state == "busy"

    @property
    def odd(self) -> str:
        """What is wrong with a state that says neither busy nor idle."""
        state = self.execution_state or "none"
        if self.busy or state in IDLE_STATES:
            return ""
        return f"{self} is in state {state if _STATE.match(state) else '?'}"


@dataclass(frozen=True, slots=True)
class UnixSocket:
    """`root`: descriptor of the server's root directory; `path`: as the server names it."""

    root: int
    path: str


@contextmanager
def connected(to: Listener | UnixSocket, deadline: float) -> Iterator[socket.socket]:
    """`deadline`: monotonic seconds. OSError, NoAnswer."""
    channel = socket.socket(socket.AF_UNIX if isinstance(to, UnixSocket) else to.family)
    try:
        channel.settimeout(_left(deadline))
        if isinstance(to, UnixSocket):
            _connect_unix(channel, to)
        else:
            channel.connect(to.reached_at)
            # Its end leaves nothing behind: neither TIME_WAIT here nor CLOSE_WAIT there.
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        yield channel
    finally:
        channel.close()


def _connect_unix(channel: socket.socket, to: UnixSocket) -> None:
    # By descriptor, so that what was looked at is what is connected to.
    fd = open_within(to.root, to.path, os.O_PATH)
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            raise NoAnswer("its socket is none")
        channel.connect(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def listens_there(channel: socket.socket) -> tuple[int, int]:
    """PID, as the agent has it, and uid of the process that listens at a connected Unix socket."""
    raw = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return pid, uid


def kernels(
    channel: socket.socket, base_url: str, token: str, *, secure: bool, deadline: float
) -> Sequence[KernelState]:
    """The server's kernels, asked so that its record of activity does not move. NoAnswer."""
    target = f"{base_url}api/kernels?no_track_activity=1"
    lines = [f"GET {target} HTTP/1.0", "Host: localhost", "Accept: application/json"]
    if token:
        lines.append(f"Authorization: token {token}")
    question = ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
    try:
        if not secure:
            return _parsed(_said(channel, question, deadline))
        channel.settimeout(_left(deadline))
        with _private().wrap_socket(channel) as private:
            return _parsed(_said(private, question, deadline))
    except TimeoutError:
        raise NoAnswer("no answer") from None
    except ssl.SSLError:
        raise NoAnswer("no TLS there") from None
    except OSError as error:
        raise NoAnswer(error.strerror or "no answer") from None


def _private() -> ssl.SSLContext:
    """The certificate is not looked at: whose socket it is, is proven better than by a name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise NoAnswer("no answer")
    return left


def _said(channel: socket.socket, question: bytes, deadline: float) -> bytes:
    """Everything until the server closes: with HTTP/1.0 that is the answer."""
    channel.settimeout(_left(deadline))
    channel.sendall(question)
    parts: list[bytes] = []
    size = 0
    while True:
        channel.settimeout(_left(deadline))
        part = channel.recv(65536)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise NoAnswer("it never stops talking")


class _Received:
    """What has arrived, in the place of the socket that http.client reads from."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


def _parsed(raw: bytes) -> Sequence[KernelState]:
    if not raw:
        raise NoAnswer("it hangs up")
    answer = http.client.HTTPResponse(_Received(raw), method="GET")  # type: ignore[arg-type]
    try:
        answer.begin()
        body = answer.read()
    except (http.client.HTTPException, ValueError, OverflowError, OSError):
        raise NoAnswer("it does not speak HTTP") from None
    if answer.status in (401, 403):
        raise Refused(str(answer.status))
    if answer.status != 200:
        raise NoAnswer(str(answer.status))
    try:
        return msgspec.json.decode(body, type=list[KernelState])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise NoAnswer("its answer is no list of kernels") from None
