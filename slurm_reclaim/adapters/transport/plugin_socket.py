"""The agent's end of the Unix socket on which the SPANK plugin asks and reclaim-init attaches.

Only root may connect (SO_PEERCRED); the peer's PID tells which reclaim-init it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path

from slurm_reclaim.adapters.transport import lines
from slurm_reclaim.errors import AgentUnavailable, BadRequest, OperationFailed, Unavailable

log = logging.getLogger(__name__)

StartHandler = Callable[[dict[str, str]], Awaitable[dict[str, str]]]
AttachHandler = Callable[[dict[str, str], int, "InitLink"], Awaitable[None]]
LeaveHandler = Callable[["InitLink"], Awaitable[None]]


class InitLink:
    """A connection to one reclaim-init. The blocking methods (ports.Link) are for worker threads;
    they run on the event loop that owns the connection."""

    def __init__(self, writer: asyncio.StreamWriter, loop: asyncio.AbstractEventLoop) -> None:
        self._writer = writer
        self._loop = loop
        self._waiting: dict[str, asyncio.Future[dict[str, str]]] = {}
        self.closed = False

    def hold(self) -> None:
        self._call({"cmd": "hold"})

    def unhold(self) -> None:
        self._call({"cmd": "unhold"})

    def adopt_root(self, inner_pid: int) -> None:
        self._call({"cmd": "root", "pid": str(inner_pid)})

    def end(self, status: int) -> None:
        self._call({"cmd": "end", "status": str(status)})

    def _call(self, message: dict[str, str]) -> None:
        future = asyncio.run_coroutine_threadsafe(self.ask(message), self._loop)
        try:
            answer = future.result(timeout=15)
        except FutureTimeout:
            raise AgentUnavailable("reclaim-init does not answer") from None
        if answer.get("ok") != "1":
            raise OperationFailed(
                f"reclaim-init refused {message['cmd']}: {answer.get('error', 'no reason')}"
            )

    async def ask(self, message: dict[str, str]) -> dict[str, str]:
        """Send a command and wait for its answer. Raises AgentUnavailable."""
        if self.closed:
            raise AgentUnavailable("reclaim-init is not attached")
        future = self._loop.create_future()
        self._waiting[message["cmd"]] = future
        self._writer.write(lines.encode(message))
        try:
            await self._writer.drain()
            return await asyncio.wait_for(future, timeout=10)
        except (ConnectionError, asyncio.TimeoutError) as error:
            raise AgentUnavailable("reclaim-init does not answer") from error
        finally:
            self._waiting.pop(message["cmd"], None)

    def answered(self, message: dict[str, str]) -> None:
        future = self._waiting.get(message.get("cmd", ""))
        if future is not None and not future.done():
            future.set_result(message)

    def lost(self) -> None:
        self.closed = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(AgentUnavailable("reclaim-init went away"))


async def _message(reader: asyncio.StreamReader) -> dict[str, str] | None:
    """One message; None at the end of the stream."""
    try:
        raw = await reader.readuntil(b"\n\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise BadRequest("message too long") from None
    return lines.decode(raw)


class PluginSocket:
    def __init__(
        self, path: Path, start: StartHandler, attach: AttachHandler, leave: LeaveHandler
    ) -> None:
        self._path = path
        self._start, self._attach, self._leave = start, attach, leave
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen. The socket is made under another name and renamed, so that it never exists with
        wrong rights."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, path=str(temporary), limit=lines.MOST_BYTES
            )
        finally:
            os.umask(mask)
        temporary.rename(self._path)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link: InitLink | None = None
        try:
            pid, uid = _peer(writer)
            if uid != 0:
                return
            first = await _message(reader)
            if first is None:
                return
            if first.get("op") == "start":
                writer.write(lines.encode(await self._start(first)))
                await writer.drain()
            elif first.get("op") == "attach":
                link = InitLink(writer, asyncio.get_running_loop())
                writer.write(lines.encode({"ok": "1"}))
                await writer.drain()
                await self._attach(first, pid, link)
                while (message := await _message(reader)) is not None:
                    link.answered(message)
        except (BadRequest, Unavailable, ConnectionError) as error:
            # No answer is an answer: the plugin decides by itself.
            log.warning("plugin socket: %s", error)
        except Exception:
            log.exception("plugin socket")
        finally:
            if link is not None:
                link.lost()
                await self._leave(link)
            writer.close()


def _peer(writer: asyncio.StreamWriter) -> tuple[int, int]:
    """PID (as the agent sees it) and uid of the other end."""
    sock = writer.get_extra_info("socket")
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _gid = struct.unpack("3i", raw)
    return pid, uid
