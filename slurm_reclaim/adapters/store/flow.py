"""Memory that a stream passes through on its way into a pipe.

What is put together in a slot can go into the pipe as pages that are only lent to it, not copied:
the reader's own copy is then the only one. A slot must not be touched before the reader has taken
all of it, which the order of things sees to: once all of piece n is in the pipe, whatever of the
pieces below n - 1 was there has been read.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import termios
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor, Future

from slurm_reclaim.adapters.store import blocks
from slurm_reclaim.adapters.store.frames import FRAME
from slurm_reclaim.adapters.store.packs import PackReader
from slurm_reclaim.errors import ProgrammingError

# The piece on its way into the pipe, and the one before it, of which a part may still be there.
_IN_THE_PIPE = 2
FEWEST_AHEAD = 3
_SLOT = blocks.MOST_OF_A_BATCH + mmap.PAGESIZE  # a multiple of pages


class Flow:
    """One stream, in pieces of about a frame of which up to `ahead` are put together, checked,
    before they are wanted. Memory: `ahead` frames and two."""

    def __init__(
        self, stream: blocks.Stream, packs: Sequence[PackReader], pool: Executor, ahead: int
    ) -> None:
        self._packs, self._pool = packs, pool
        self._batches = blocks.batches(stream)
        self.ahead, self._slots = ahead, ahead + _IN_THE_PIPE
        self._fd = os.memfd_create("reclaim-stream")
        os.ftruncate(self._fd, self._slots * _SLOT)
        self._place = memoryview(mmap.mmap(self._fd, self._slots * _SLOT))
        self._begun = 0
        self._pieces: deque[Future[int]] = deque()

    def fill(self) -> None:
        """Begin as many pieces as there may be; waits for none."""
        while len(self._pieces) < self.ahead:
            batch = next(self._batches, None)
            if batch is None:
                return
            place = self._slot(self._begun)
            self._pieces.append(self._pool.submit(blocks.assemble, batch, self._packs, place))
            self._begun += 1

    def pour(self, pipe: int, *, lend: bool) -> None:
        """All of it into a pipe. With `lend` the pages are lent to it: for readers alone whom
        nobody can make keep what they read. Raises BrokenPipeError where nobody reads any more,
        IntegrityError, OSError."""
        # A piece is at least as large as what fits into the pipe, but for the last one.
        lend = lend and capacity(pipe) <= FRAME
        number = before = 0
        self.fill()
        while self._pieces:
            size = self._pieces.popleft().result()
            if lend:
                self._lend(pipe, number, size)
                if _unread(pipe) > size + before:
                    raise ProgrammingError("a pipe holds more than fits into it")
            else:
                write_all(pipe, self._slot(number)[:size])
            number, before = number + 1, size
            self.fill()

    def _slot(self, number: int) -> memoryview:
        at = number % self._slots * _SLOT
        return self._place[at : at + _SLOT]

    def _lend(self, pipe: int, number: int, size: int) -> None:
        at = number % self._slots * _SLOT
        end = at + size
        while at < end:
            at += os.splice(self._fd, pipe, end - at, offset_src=at)

    def close(self) -> None:
        """The memory goes when nobody uses a slot any more."""
        for piece in self._pieces:
            piece.cancel()
        os.close(self._fd)


def capacity(pipe: int) -> int:
    """Bytes."""
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def _unread(pipe: int) -> int:
    (size,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(size)


def write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]
