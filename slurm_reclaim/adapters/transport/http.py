"""The little HTTP that agents and the command line speak: requests over connections that are kept.

h11 knows the protocol, asyncio the sockets. A full client library would make every agent of a
cluster a third larger.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import h11

# The server closes what is idle for longer (server.IDLE_FOR); a connection that it is just closing
# must not be taken for one that is open.
KEPT_FOR = 15.0  # seconds
MOST_BYTES = 256 << 20  # of an answer


@dataclass(frozen=True, slots=True)
class Answer:
    """`headers` with names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.CLIENT)
        self._used = time.monotonic()

    @property
    def usable(self) -> bool:
        fresh = time.monotonic() - self._used < KEPT_FOR
        idle = self._http.our_state is h11.IDLE
        return fresh and idle and not self._reader.at_eof() and not self._writer.is_closing()

    async def ask(self, request: h11.Request, body: bytes) -> Answer:
        """Raises OSError, h11.ProtocolError."""
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()
        answer = await self._answer()
        if self._http.our_state is self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        self._used = time.monotonic()
        return answer

    async def _answer(self) -> Answer:
        head: h11.Response | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(1 << 16))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MOST_BYTES:
                    raise OSError("the answer is too long")
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers = {n.decode("latin-1"): v.decode("latin-1") for n, v in head.headers}
                return Answer(head.status_code, headers, bytes(body))
            elif isinstance(event, (h11.ConnectionClosed, type(h11.PAUSED))):
                raise OSError("the connection was closed")

    def close(self) -> None:
        self._writer.close()


class HttpClient:
    """Requests to one server; any number at once."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._kept: list[_Connection] = []

    async def ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes, timeout: float
    ) -> Answer:
        """`path` goes out byte for byte; `timeout` seconds for all of it. Raises OSError,
        asyncio.TimeoutError, h11.ProtocolError."""
        request = h11.Request(
            method=method,
            target=path.encode(),
            headers=[
                ("Host", f"{self._host}:{self._port}"),
                ("Content-Length", str(len(body))),
                *headers.items(),
            ],
        )
        return await asyncio.wait_for(self._ask(request, body), timeout)

    async def _ask(self, request: h11.Request, body: bytes) -> Answer:
        connection = self._idle() or _Connection(
            *await asyncio.open_connection(self._host, self._port)
        )
        try:
            answer = await connection.ask(request, body)
        except BaseException:
            connection.close()
            raise
        if connection.usable:
            self._kept.append(connection)
        else:
            connection.close()
        return answer

    def _idle(self) -> _Connection | None:
        while self._kept:
            connection = self._kept.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    async def close(self) -> None:
        while self._kept:
            self._kept.pop().close()
        await asyncio.sleep(0)  # the transports close in the loop's next turn
