"""Memory of ours that a pipe's reader is lent instead of given a copy (vmsplice(2)).

Whoever copies into a pipe keeps its reader out meanwhile, and each page of a copy is allocated by
one CPU and freed by another. What is lent must stay as it is until it was read.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import mmap
import os
import select
import termios
import time
from collections import deque

_LIBC = ctypes.CDLL(None, use_errno=True)
_PAUSE = 0.001


class _Piece(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("at", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Ring:
    """Slots of memory for pieces on their way into the pipe `fd`, whose reader must copy what it
    reads: where it passes pages on (splice(2)), nobody can tell when a slot is free again. May be
    dropped at any time: what was lent stays with the pipe."""

    def __init__(self, fd: int, slots: int, size: int) -> None:
        """`size`: of a slot in bytes, whole pages."""
        self._fd, self._size = fd, size
        self._memory = mmap.mmap(-1, slots * size)
        self._at = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._lending = True
        self._free = list(range(slots))
        # slots that were lent, and how many bytes had been with them
        self._lent: deque[tuple[int, int]] = deque()
        self._total = 0

    def take(self) -> int:
        """A slot that nobody reads any more. Waits for one; raises BrokenPipeError where nobody
        will read."""
        while not self._free:
            self._take_back()
            if not self._free:
                self._see_reader()
                time.sleep(_PAUSE)  # nothing tells when some of it has been read
        # The one that was free last: memory that is touched for the first time is dear.
        return self._free.pop()

    def room(self, slot: int) -> memoryview:
        return memoryview(self._memory)[slot * self._size : (slot + 1) * self._size]

    def lend(self, slot: int, size: int) -> None:
        """The first `size` bytes of a slot are in the pipe on return. Raises OSError, and
        BrokenPipeError where nobody reads it."""
        at, left = slot * self._size, size
        while left:
            done = self._put(at, left)
            at, left = at + done, left - done
        self._total += size
        self._lent.append((slot, self._total))

    def _put(self, at: int, size: int) -> int:
        if self._lending:
            done = _LIBC.vmsplice(self._fd, ctypes.byref(_Piece(self._at + at, size)), 1, 0)
            if done >= 0:
                return int(done)
            error = ctypes.get_errno()
            if error not in (errno.ENOSYS, errno.EPERM):  # as in some containers
                raise OSError(error, os.strerror(error))
            self._lending = False
        return os.write(self._fd, memoryview(self._memory)[at : at + size])

    def _take_back(self) -> None:
        unread = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, unread)
        while self._lent and self._lent[0][1] <= self._total - unread[0]:
            self._free.append(self._lent.popleft()[0])

    def _see_reader(self) -> None:
        poll = select.poll()
        poll.register(self._fd, 0)
        if poll.poll(0):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
