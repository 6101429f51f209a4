"""Hashing and syncing big files while they are being written.

CRIU writes its pages files from front to back and never goes back, so what lies below the end of
such a file is final. One thread hashes it as it grows, another pushes it to the disk; when the dump
is over, both are nearly done.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from blake3 import blake3

from slurm_reclaim.model.checkpoint import Part

_CHUNK = 4 << 20
_PAUSE = 0.02
PATTERN = "pages-*.img"


class _Growing:
    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY)
        self.hasher = blake3()
        self.done = 0

    def advance(self, buffer: bytearray) -> bool:
        """Hash one chunk more; False where there is none."""
        got = os.preadv(self.fd, [buffer], self.done)
        if got:
            self.hasher.update(memoryview(buffer)[:got])
            self.done += got
        return got > 0


class Follower:
    """Follows the pages files below a directory from `start` to `finish`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, _Growing] = {}
        self._over = threading.Event()
        self._error: OSError | None = None
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._hash, self._sync)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> dict[str, Part]:
        """The files as parts, by their path below the directory, hashed to their very end. Raises
        OSError where the disk said no."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        try:
            if self._error is not None:
                raise self._error
            return {
                str(path.relative_to(self._folder)): Part(
                    str(path.relative_to(self._folder)), file.done, file.hasher.hexdigest()
                )
                for path, file in self._files.items()
            }
        finally:
            for file in self._files.values():
                os.close(file.fd)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self._error = error

    def _find(self) -> list[_Growing]:
        with self._lock:
            for path in self._folder.rglob(PATTERN):
                if path not in self._files:
                    self._files[path] = _Growing(path)
            return list(self._files.values())

    def _hash(self) -> None:
        buffer = bytearray(_CHUNK)
        while True:
            over = self._over.is_set()
            moved = False
            for file in self._find():
                while file.advance(buffer):
                    moved = True
            if over:
                return
            if not moved:
                time.sleep(_PAUSE)

    def _sync(self) -> None:
        while not self._over.is_set():
            for file in self._find():
                os.fdatasync(file.fd)
            time.sleep(_PAUSE)
