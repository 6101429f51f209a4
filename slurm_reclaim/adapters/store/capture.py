"""The program that takes a dump in: CRIU's images and the agent's own archives arrive by pipes and
leave as blocks in a new pack. A program of its own, because it takes memory and time that the
agent needs for other sessions, and gives all of it back when it ends.

Started by `staging.Staging`, with two descriptors: a listening socket for CRIU, and the agent's
end. It writes `<folder>/<pack>` and `<folder>/index`, both durable, and the small images into
`<images>` for the agent to look at.
"""

from __future__ import annotations

import os
import select
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_reclaim.adapters.criu import stream as criu
from slurm_reclaim.adapters.store import blocks, talk
from slurm_reclaim.adapters.store.files import INDEX, fsync_directory, write_new
from slurm_reclaim.adapters.store.frames import BLOCK, FRAME, FrameCodec, digest
from slurm_reclaim.adapters.store.packs import PackWriter, cipher_for, open_pack
from slurm_reclaim.adapters.store.parts import FilePart

_SMALL_BUFFER = 16 * BLOCK
# Images that may be large: they are not handed to the agent.
_BULK = ("pages-", "ghost-file-", "tmpfs-", "files.tar", "outputs-")
_TELL_EVERY = 0.25
# How long to wait, without an agent, for a CRIU that it may have started.
_ORPHAN_PATIENCE = 30


class _Incoming:
    """A pipe being emptied. Blocks are cut off at multiples of 4 KiB."""

    def __init__(self, fd: int, name: str) -> None:
        self.fd, self.name = fd, name
        self.bulk = name.startswith(_BULK)
        if self.bulk:
            talk.widen(fd)
        self.buffer = memoryview(bytearray(FRAME if self.bulk else _SMALL_BUFFER))
        self.filled = 0
        self.kept: list[bytes] = []

    def fill(self) -> int:
        got = os.readv(self.fd, [self.buffer[self.filled :]])
        self.filled += got
        return got


class Capture:
    def __init__(self, listening: socket.socket, agent: socket.socket, orders: dict[str, Any]):
        self._folder = Path(orders["folder"])
        self._images = Path(orders["images"])
        packs, keys = Path(orders["packs"]), orders["keys"]
        self._known = [
            open_pack(packs, FilePart(**known), keys.get(known["path"], ""))
            for known in orders["known"]
        ]
        cipher = cipher_for(orders["pack"], keys.get(orders["pack"], ""))
        codec = FrameCodec(int(orders["level"]), cipher)
        self._pack = PackWriter(self._folder / orders["pack"], codec, max(2, os.cpu_count() or 2))
        self._writer = blocks.BlockWriter(self._pack, self._known, int(orders["seed"]))
        self._listening, self._agent = listening, agent
        self._criu: socket.socket | None = None
        self._incoming: dict[int, _Incoming] = {}
        self._streams: dict[int, blocks.Stream] = {}
        self._raw = 0
        self._told = 0.0
        self._finishing = self._orphaned = self._connected = self._settled = False
        self._poll = select.poll()

    def run(self) -> None:
        """Until the agent says that this was all, and every pipe has ended."""
        for end in (self._listening, self._agent):
            self._poll.register(end.fileno(), select.POLLIN)
        while not (self._finishing and not self._incoming and self._criu is None):
            ready = self._poll.poll(_ORPHAN_PATIENCE * 1000 if self._orphaned else None)
            if self._orphaned and not (ready or self._connected):
                raise talk.Hangup
            for fd, _ in ready:
                self._ready(fd)
            self._tell_of_the_end()
        if self._orphaned:
            raise talk.Hangup
        index, hashes = self._writer.finish()
        encoded = blocks.encode(index)
        write_new(self._folder / INDEX, encoded)
        pack = self._pack.finish(hashes)
        fsync_directory(self._folder)
        self._agent.settimeout(None)
        talk.send(
            self._agent,
            {
                "finished": True,
                "raw": self._raw,
                "packs": index.packs,
                "pack": [pack.path, pack.size, pack.digest],
                "index": [INDEX, len(encoded), digest(encoded).hex()],
            },
        )

    def _ready(self, fd: int) -> None:
        if fd in self._incoming:
            self._advance(fd)
        elif fd == self._agent.fileno():
            self._order()
        elif fd == self._listening.fileno():
            self._criu, _ = self._listening.accept()
            self._connected = True
            self._poll.unregister(self._listening.fileno())
            self._poll.register(self._criu.fileno(), select.POLLIN)
        elif self._criu is not None and fd == self._criu.fileno():
            try:
                name = criu.receive_name(self._criu)
                pipe = -1 if name is None else criu.receive_pipe(self._criu)
            except ConnectionError:
                name = None  # it was killed, which its exit status tells
            if name is None:
                self._poll.unregister(fd)
                self._criu.close()
                self._criu = None
            else:
                self._take(name, pipe)

    def _tell_of_the_end(self) -> None:
        """Of CRIU's images: the last of them may still be in its pipe when CRIU has ended."""
        if self._connected and self._criu is None and not (self._incoming or self._settled):
            self._settled = True
            if not self._orphaned:
                talk.send(self._agent, {"settled": True})

    def _order(self) -> None:
        try:
            message, fd = talk.receive(self._agent)
        except talk.Hangup:
            # A CRIU whose pipes break has to undo what it began. It is let come to its end: the
            # next agent waits for it, and then gives the tree back.
            self._poll.unregister(self._agent.fileno())
            self._finishing = self._orphaned = True
            return
        if message["do"] == "take" and fd is not None:
            self._take(message["name"], fd)
        elif message["do"] == "finish":
            self._finishing = True

    def _take(self, name: str, fd: int) -> None:
        incoming = _Incoming(fd, name)
        self._incoming[fd] = incoming
        self._streams[fd] = self._writer.stream(name, bulk=incoming.bulk)
        self._poll.register(fd, select.POLLIN)

    def _advance(self, fd: int) -> None:
        incoming = self._incoming[fd]
        got = incoming.fill()
        if got and incoming.filled < len(incoming.buffer):
            return
        data = incoming.buffer[: incoming.filled]
        if data and self._orphaned:
            incoming.filled = 0
        elif data:
            self._writer.write(self._streams[fd], data)
            if not incoming.bulk:
                incoming.kept.append(bytes(data))
            self._raw += len(data)
            incoming.filled = 0
            self._tell()
        if not got:
            self._poll.unregister(fd)
            os.close(fd)
            del self._incoming[fd]
            size = self._streams.pop(fd).size
            if not incoming.bulk:
                (self._images / incoming.name).write_bytes(b"".join(incoming.kept))
            if not self._orphaned:
                talk.send(self._agent, {"stored": incoming.name, "bytes": size})

    def _tell(self) -> None:
        """Progress, which the agent may be too busy to read: then it is left out."""
        if time.monotonic() - self._told > _TELL_EVERY:
            self._told = time.monotonic()
            with suppress(BlockingIOError):
                self._agent.setblocking(False)
                talk.send(self._agent, {"raw": self._raw})
            self._agent.setblocking(True)


def main() -> None:
    talk.run(Capture)
