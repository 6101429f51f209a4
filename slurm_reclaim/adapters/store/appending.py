"""A new file that grows at its end: written past the page cache where the file system lets us, by
threads of its own.

A dump is read again hours later, often on another node. In the page cache it would only push out
what the node's jobs read, and each of its pages costs a copy and, on a virtual machine, memory that
is touched for the first time.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

# Written at once; a multiple of what any disk wants its blocks aligned to.
_CHUNK = 4 << 20
_WRITING = 2  # chunks on their way to the disk, beside the one that is being filled
# Without O_DIRECT: pushed to the disk while the dump goes on, so that the end has little to do.
_SYNC_EVERY = 8 << 20


class Appender:
    """What was appended may be changed afterwards: it is copied. What goes wrong with a write is
    raised by a later call, by `finish` at the latest. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._direct = False
        with suppress(OSError):  # not on tmpfs, nor on some FUSE file systems
            self._turn_direct(True)
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._unsynced = 0
        self._threads = ThreadPoolExecutor(_WRITING)
        # mmap: whole pages, as O_DIRECT wants its memory aligned.
        self._free: queue.SimpleQueue[mmap.mmap] = queue.SimpleQueue()
        for _ in range(_WRITING):
            self._free.put(mmap.mmap(-1, _CHUNK))
        self._chunk, self._filled = mmap.mmap(-1, _CHUNK), 0
        self._at = 0  # of the chunk

    @property
    def size(self) -> int:
        """Bytes appended so far."""
        return self._at + self._filled

    def append(self, *pieces: bytes | bytearray | memoryview) -> None:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                taken = min(len(rest), _CHUNK - self._filled)
                self._chunk[self._filled : self._filled + taken] = rest[:taken]
                self._filled += taken
                rest = rest[taken:]
                if self._filled == _CHUNK:
                    self._hand_over()

    def finish(self) -> None:
        """Write the rest, make all of it durable and close."""
        self._threads.shutdown()
        self._raise()
        self._turn_direct(False)  # the rest is of any length
        self._put(memoryview(self._chunk)[: self._filled], self._at)
        os.fsync(self._fd)
        os.close(self._fd)

    def _hand_over(self) -> None:
        self._threads.submit(self._write, self._chunk, self._at)
        self._at += _CHUNK
        self._chunk, self._filled = self._free.get(), 0
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _write(self, chunk: mmap.mmap, at: int) -> None:
        try:
            self._put(memoryview(chunk), at)
            self._sync_now_and_then()
        except BaseException as error:
            self._error = error
        finally:
            self._free.put(chunk)

    def _put(self, data: memoryview, at: int) -> None:
        while data:
            direct = self._direct
            try:
                written = os.pwrite(self._fd, data, at)
            except OSError as error:
                # It took O_DIRECT and is more particular about it than others, or a write ended
                # within a block: a full disk says so itself when it is asked the other way.
                if error.errno != errno.EINVAL or not direct:
                    raise
                self._turn_direct(False)
                continue
            data, at = data[written:], at + written

    def _turn_direct(self, on: bool) -> None:
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        wanted = flags | os.O_DIRECT if on else flags & ~os.O_DIRECT
        fcntl.fcntl(self._fd, fcntl.F_SETFL, wanted)
        self._direct = on

    def _sync_now_and_then(self) -> None:
        if self._direct:
            return
        with self._lock:
            self._unsynced += _CHUNK
            due = self._unsynced >= _SYNC_EVERY
            if due:
                self._unsynced = 0
        if due:
            os.fdatasync(self._fd)
