"""Buffers that a stream passes through on its way into a pipe.

What is put together in a slot can go into the pipe as pages that are only lent to it, not copied:
the reader's own copy is then the only one. A slot must not be touched before the reader has taken
all of it, which the order of things sees to: while bytes of number n go into the pipe, whatever
lay in it of numbers below n - 1 has been read.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import termios

from slurm_reclaim.adapters.store.blocks import MOST_OF_A_BATCH
from slurm_reclaim.adapters.store.frames import FRAME
from slurm_reclaim.errors import ProgrammingError

_SLOTS = 5
# The one on its way into the pipe, and the one before it, which may not have been read to its end.
AHEAD = _SLOTS - 2
_SLOT = MOST_OF_A_BATCH + mmap.PAGESIZE  # a multiple of pages


class Ring:
    """For one stream, whose pieces are numbered from 0 and go into one pipe in that order. With
    `lend` they are lent to it: for readers alone whom nobody can make keep what they read."""

    def __init__(self, pipe: int, *, lend: bool) -> None:
        self._pipe = pipe
        self._fd = os.memfd_create("reclaim-stream")
        os.ftruncate(self._fd, _SLOTS * _SLOT)
        self._place = memoryview(mmap.mmap(self._fd, _SLOTS * _SLOT))
        # A slot is at least as large as what fits into the pipe, so that two never are in it whole.
        self._lend = lend and capacity(pipe) <= FRAME
        self._before = 0

    def slot(self, number: int) -> memoryview:
        """Where piece `number` is to be put together. Not before `send(number - AHEAD)`."""
        at = number % _SLOTS * _SLOT
        return self._place[at : at + _SLOT]

    def send(self, number: int, size: int) -> None:
        """The first `size` bytes of a slot, all of them in the pipe when this returns. Raises
        BrokenPipeError where nobody reads any more."""
        if not self._lend:
            write_all(self._pipe, self.slot(number)[:size])
            return
        at = number % _SLOTS * _SLOT
        end = at + size
        while at < end:
            at += os.splice(self._fd, self._pipe, end - at, offset_src=at)
        if _unread(self._pipe) > size + self._before:
            raise ProgrammingError("a pipe holds more than fits into it")
        self._before = size

    def close(self) -> None:
        """The memory goes when nobody uses a slot any more."""
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
