"""The file of the store's keys: root's alone, the same on every node (docs/storage.md, Keys)."""

from __future__ import annotations

import os
import secrets
import stat
import time
from pathlib import Path

from slurm_reclaim.adapters.store.records import write_durably
from slurm_reclaim.errors import KeyUnavailable
from slurm_reclaim.model.storekey import SECRET_BYTES, StoreKey, parse, sealing

MOST_BYTES = 64 << 10
_HEAD = (
    "# Keys of the checkpoint store: the same file on every node, root's alone. With a key every\n"
    "# checkpoint is lost that it sealed (docs/storage.md, Keys).\n"
)
_HINT = "make one with `reclaim key new`, or copy the file of another node (root, 0600)"


class KeyFile:
    """Read anew whenever it has changed, so that a rotation needs no restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int, int] | None = None
        self._keys: tuple[StoreKey, ...] = ()

    def keys(self) -> tuple[StoreKey, ...]:
        """Raises KeyUnavailable."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise KeyUnavailable(
                f"the store's keys {self.path} can't be read: {error.strerror}", hint=_HINT
            ) from None
        with os.fdopen(fd, "rb") as file:
            facts = os.fstat(fd)
            seen = (facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns)
            if seen != self._seen:
                self._see_private(facts)
                self._keys, self._seen = self._parse(file.read(MOST_BYTES)), seen
        return self._keys

    def _see_private(self, facts: os.stat_result) -> None:
        mode = stat.S_IMODE(facts.st_mode)
        if not stat.S_ISREG(facts.st_mode):
            raise KeyUnavailable(f"the store's keys {self.path}: it is no regular file")
        if facts.st_uid != os.geteuid() or mode & 0o077:
            raise KeyUnavailable(
                f"the store's keys {self.path} are {mode:04o} and of uid {facts.st_uid}: "
                "only root may read them",
                hint=f"chown root:root {self.path}; chmod 0600 {self.path}; if others could read "
                "it, rotate (`reclaim key new`)",
            )

    def _parse(self, raw: bytes) -> tuple[StoreKey, ...]:
        try:
            return parse(raw.decode("ascii"))
        except UnicodeDecodeError:
            raise KeyUnavailable(f"the store's keys {self.path}: it is no text") from None
        except ValueError as error:
            raise KeyUnavailable(f"the store's keys {self.path}: {error}", hint=_HINT) from None

    def sealing(self) -> StoreKey:
        """The key that seals now. Raises KeyUnavailable."""
        return sealing(self.keys(), time.time())

    def find(self, id: str) -> StoreKey | None:
        """Raises KeyUnavailable."""
        return next((key for key in self.keys() if key.id == id), None)

    def ids(self) -> tuple[str, ...]:
        """Of all keys, the one that seals first; none where they can't be read."""
        try:
            first = self.sealing().id
        except KeyUnavailable:
            return ()
        return (first, *(key.id for key in self._keys if key.id != first))

    def add(self, delay: float) -> StoreKey:
        """A new key that seals in `delay` seconds, or at once where it is the first. Raises
        KeyUnavailable, OSError."""
        there = self.keys() if self.path.exists() else ()
        since = float(int(time.time() + (delay if there else 0)))
        made = StoreKey(since, secrets.token_bytes(SECRET_BYTES))
        text = _HEAD + "".join(f"{key.line()}\n" for key in (*there, made))
        write_durably(self.path, text.encode())
        return made
