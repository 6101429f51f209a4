"""The node's directory as a cache: what is at the remote place makes way when room is needed."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

from slurm_reclaim.adapters.store import fetch, marks
from slurm_reclaim.adapters.store.collection import LEASE, READING
from slurm_reclaim.adapters.store.directory import PACKS, DirectoryStore
from slurm_reclaim.adapters.store.files import MANIFEST, exists, fsync_directory, is_number
from slurm_reclaim.adapters.store.marks import Mark
from slurm_reclaim.adapters.store.publish import STAGING
from slurm_reclaim.adapters.store.walk import names_in
from slurm_reclaim.errors import ReclaimError
from slurm_reclaim.model.ids import SessionId

log = logging.getLogger(__name__)

# Directories beside the checkpoints: nobody is at them where no checkpoint is left.
_REMAINS = (fetch.FETCHING, fetch.UPLOADING)


class Cache:
    """`work` is where `local` works: a session that is read or written has a directory there."""

    def __init__(self, local: DirectoryStore, work: Path, min_free: int) -> None:
        self._local = local
        self._work = work
        self._min_free = min_free
        # While somebody has or wants it: an agent sees sessions come and go for years.
        self._locks: WeakValueDictionary[SessionId, threading.RLock] = WeakValueDictionary()
        self._guard = threading.Lock()
        self._room = threading.Lock()

    def lock(self, session: SessionId) -> threading.RLock:
        """What is here of a session changes only with this."""
        with self._guard:
            lock = self._locks.get(session)
            if lock is None:
                self._locks[session] = lock = threading.RLock()
            return lock

    @contextmanager
    def locked(self, session: SessionId) -> Iterator[None]:
        with self.lock(session):
            yield

    def marked(self, *wanted: Mark) -> list[tuple[float, SessionId, int]]:
        """Checkpoints here, the oldest word first. Raises StoreUnavailable."""
        found = []
        with fetch.answering(self._local.root):
            for session in marks.sessions(self._local.base):
                for restarts in self._local.committed(session):
                    folder = self._local.checkpoint_dir(session, restarts)
                    if marks.read(folder) in wanted:
                        found.append((marks.changed(folder), session, restarts))
        return sorted(found)

    def make_room(self, size: int) -> None:
        """Oldest first, until there are `size` bytes or nothing is left that may go."""
        with self._room:
            need = size + self._min_free
            for _, session, restarts in self.marked(*marks.ELSEWHERE) if self._short(need) else ():
                if not self._short(need):
                    return
                with suppress(ReclaimError, OSError):
                    if self.forget(session, restarts):
                        log.info("made room: the copy of %s/%s is gone", session, restarts)

    def _short(self, need: int) -> bool:
        return self._local.check() < need

    def forget(self, session: SessionId, restarts: int) -> bool:
        """Delete a copy of what is at the remote place, unless it is in use; whether it is gone.
        Raises StoreUnavailable, IntegrityError, OSError."""
        lock = self.lock(session)
        if not lock.acquire(blocking=False):
            return False
        try:
            folder = self._local.checkpoint_dir(session, restarts)
            if not exists(folder):
                return False
            if self._used(session) or marks.read(folder) not in marks.ELSEWHERE:
                return False
            self.drop(session, restarts)
            self.tidy(session)
            return True
        finally:
            lock.release()

    def _used(self, session: SessionId) -> bool:
        """Not by our own memory: who reads outlives an agent that is restarted. Only so long,
        though: an agent that was killed leaves its word behind."""
        folder = self._local.session_dir(session)
        return exists(self._work / session.folder) or any(
            name.startswith(STAGING) or (name.startswith(READING) and _age(folder / name) < LEASE)
            for name in names_in(folder)
        )

    def drop(self, session: SessionId, restarts: int) -> None:
        """Delete what is here, the manifest first; then the packs that nothing here names, but not
        while something is staged that may count on them. Raises IntegrityError, OSError."""
        folder = self._local.checkpoint_dir(session, restarts)
        packs = self._local.session_dir(session) / PACKS
        (folder / MANIFEST).unlink(missing_ok=True)
        fsync_directory(folder)
        shutil.rmtree(folder)
        if any(path.name.startswith(STAGING) for path in folder.parent.iterdir()):
            return
        left = self._local.committed(session)
        named = {pack.path for n in left for pack in self._local.read(session, n).packs}
        for name in names_in(packs):
            if name not in named:
                (packs / name).unlink()

    def tidy(self, session: SessionId) -> None:
        """Remove directories in which nothing is left, but for what a killed agent was at."""
        folder = self._local.session_dir(session)
        if any(is_number(name) for name in names_in(folder)):
            return
        for name in names_in(folder):
            if name.startswith(_REMAINS):
                shutil.rmtree(folder / name, ignore_errors=True)
            elif name.startswith(READING):
                (folder / name).unlink(missing_ok=True)
        for each in (folder / PACKS, folder):
            with suppress(OSError):
                each.rmdir()


def _age(path: Path) -> float:
    """Seconds; none for what is gone meanwhile."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return LEASE
