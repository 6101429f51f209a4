"""The program that gives a checkpoint back: from packs, through checks, into the pipes of the
agent's own tools and, when the agent says so, of CRIU. Nobody is handed a byte that was not
compared with the sealed manifest in this program's own memory first.

Started by `staging.Opened`, with two descriptors: a listening socket for CRIU, and the agent's end.
It puts the small images into `<images>`, where the agent edits them before CRIU asks for them.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from slurm_reclaim.adapters.criu import stream as criu
from slurm_reclaim.adapters.store import blocks, talk
from slurm_reclaim.adapters.store.files import read_part
from slurm_reclaim.adapters.store.frames import FRAME
from slurm_reclaim.adapters.store.packs import open_pack
from slurm_reclaim.adapters.store.parts import FilePart
from slurm_reclaim.errors import IntegrityError, ReclaimError

T = TypeVar("T")
# Frames decoded ahead of the one that is written.
_AHEAD = 4
# Lent and not read yet, with a pipe of at most 1 MiB; where it is larger they are waited for.
_UNREAD = 4
# Of these CRIU reads, which copies, into the memory that it restores.
_COPIED = "pages-"


class Serve:
    def __init__(self, listening: socket.socket, agent: socket.socket, orders: dict[str, Any]):
        self._images = Path(orders["images"])
        index = blocks.decode(read_part(Path(orders["folder"]), FilePart(**orders["index"])))
        parts = {known["path"]: FilePart(**known) for known in orders["known"]}
        if missing := [name for name in index.packs if name not in parts]:
            raise IntegrityError(f"the manifest does not name the pack {missing[0]}")
        folder, keys = Path(orders["packs"]), orders["keys"]
        self._packs = [open_pack(folder, parts[name], keys.get(name, "")) for name in index.packs]
        self._bulk = {s.name: s for s in index.streams if s.bulk}
        self._small = [s for s in index.streams if not s.bulk]
        self._listening, self._agent = listening, agent
        self._criu: socket.socket | None = None
        self._hung_up = False
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max(2, min(8, os.cpu_count() or 2)))
        self._poll = select.poll()

    def run(self) -> None:
        for stream in self._small:
            with (self._images / stream.name).open("xb") as file:
                for piece in blocks.read(stream, self._packs):
                    file.write(piece)
        self._say({"ready": True})
        self._poll.register(self._agent.fileno(), select.POLLIN)
        # CRIU outlives an agent that is restarted: it is served to its end.
        while not (self._hung_up and self._criu is None):
            for fd, _ in self._poll.poll():
                self._ready(fd)

    def _say(self, message: dict[str, Any]) -> None:
        with self._lock:
            talk.send(self._agent, message)

    def _ready(self, fd: int) -> None:
        if fd == self._agent.fileno():
            self._order()
        elif fd == self._listening.fileno():
            self._criu, _ = self._listening.accept()
            self._poll.unregister(fd)
            self._poll.register(self._criu.fileno(), select.POLLIN)
        elif self._criu is not None:
            self._answer(self._criu)

    def _order(self) -> None:
        try:
            message, fd = talk.receive(self._agent)
        except talk.Hangup:
            self._hung_up = True
            self._poll.unregister(self._agent.fileno())
            return
        if message["do"] == "tell":
            with suppress(talk.Hangup):
                self._say({"told": message["number"]})
        elif message["do"] == "give":
            self._poll.register(self._listening.fileno(), select.POLLIN)
        elif message["do"] == "send" and fd is not None:
            self._start(self._bulk.get(message["name"]), message["name"], fd)

    def _answer(self, connection: socket.socket) -> None:
        try:
            more = self._hand_out(connection)
        except ConnectionError:
            more = False  # it was killed, which its exit status tells
        if not more:
            self._poll.unregister(connection.fileno())
            connection.close()
            self._criu = None

    def _hand_out(self, connection: socket.socket) -> bool:
        """The next image that CRIU asks for; False where it has all. Raises ConnectionError."""
        name = criu.receive_name(connection)
        if name is None:
            return False
        exists = name in self._bulk or (self._images / name).is_file()
        criu.answer(connection, exists)
        if exists:
            pipe = criu.receive_pipe(connection)
            self._start(self._bulk.get(name), name, pipe, lend=name.startswith(_COPIED))
        return True

    def _start(
        self, stream: blocks.Stream | None, name: str, fd: int, *, lend: bool = False
    ) -> None:
        if stream is None and (self._images / name).stat().st_size <= _capacity(fd):
            self._feed(None, name, fd)  # nobody is waited for
        else:
            words = (stream, name, fd, lend)
            threading.Thread(target=self._feed, args=words, daemon=True).start()

    def _feed(self, stream: blocks.Stream | None, name: str, fd: int, lend: bool = False) -> None:
        try:
            if stream is None:
                write_all(fd, memoryview((self._images / name).read_bytes()))
            else:
                talk.widen(fd)
                (self._lend if lend else self._write)(stream, fd)
        except BrokenPipeError:
            pass  # the reader has seen enough
        except (ReclaimError, OSError) as error:
            # The pipe ends early, which no reader takes for success; this says why.
            said = error.message if isinstance(error, ReclaimError) else str(error)
            with suppress(talk.Hangup):
                self._say({"error": f"{name}: {said}"})
        finally:
            os.close(fd)

    def _write(self, stream: blocks.Stream, fd: int) -> None:
        for piece in _ahead(
            stream, lambda batch: self._pool.submit(blocks.assemble, batch, self._packs)
        ):
            write_all(fd, memoryview(piece.result()))

    def _lend(self, stream: blocks.Stream, fd: int) -> None:
        """To a reader that copies, from the memory where the pieces are put together."""
        # Where nothing is lent a program of ours starts faster without it.
        from slurm_reclaim.adapters.store.lending import Ring

        ring = Ring(fd, _AHEAD + _UNREAD, 2 * FRAME)  # a batch may be of almost two

        def begin(batch: blocks.Batch) -> tuple[int, Future[int]]:
            slot = ring.take()
            return slot, self._pool.submit(self._put, batch, ring.room(slot))

        for slot, size in _ahead(stream, begin):
            ring.lend(slot, size.result())

    def _put(self, batch: blocks.Batch, room: memoryview) -> int:
        data = blocks.assemble(batch, self._packs)
        room[: len(data)] = data
        return len(data)


def _ahead(stream: blocks.Stream, begin: Callable[[blocks.Batch], T]) -> Iterator[T]:
    """What `begin` gives for each piece of about a frame, begun a few pieces ahead."""
    ahead: deque[T] = deque()
    batches = blocks.batches(stream)
    while True:
        while len(ahead) < _AHEAD and (batch := next(batches, None)) is not None:
            ahead.append(begin(batch))
        if not ahead:
            return
        yield ahead.popleft()


def _capacity(pipe: int) -> int:
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def main() -> None:
    talk.run(Serve)
