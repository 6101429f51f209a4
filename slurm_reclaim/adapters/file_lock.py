"""A lock file that says who holds it: one controller for a journal, one agent for a node."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from slurm_reclaim.errors import Refused, StoreUnavailable


class FileLock:
    """Held from its making until `release` or the end of the process, however it ends; programs
    that the process starts do not inherit it."""

    def __init__(self, path: Path, taken: str, hint: str) -> None:
        """`taken` is the message, with {} for who holds it, of the Refused that is raised then.
        Raises StoreUnavailable where the file can't be opened."""
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnavailable(f"{path} can't be opened: {error.strerror}") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._fd, 4096, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise Refused(taken.format(holder or "unknown"), hint=hint) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{myself()}\n".encode(), 0)

    def held(self) -> bool:
        return True

    def release(self) -> None:
        os.close(self._fd)


def myself() -> str:
    return f"pid {os.getpid()} on {socket.gethostname()}"
