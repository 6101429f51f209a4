"""From the node's directory to the remote place: everything a checkpoint needs, each object
compared, the manifest last."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from slurm_reclaim.adapters.store import fetch, marks
from slurm_reclaim.adapters.store.answers import Held
from slurm_reclaim.adapters.store.bucket import Bucket
from slurm_reclaim.adapters.store.cache import Cache
from slurm_reclaim.adapters.store.directory import PACKS, DirectoryStore
from slurm_reclaim.adapters.store.files import INDEX, MANIFEST, exists
from slurm_reclaim.adapters.store.leases import GUARD
from slurm_reclaim.adapters.store.marks import Mark
from slurm_reclaim.errors import ReclaimError, StoreUnavailable
from slurm_reclaim.model.checkpoint import Manifest
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.upload import Upload, UploadState

log = logging.getLogger(__name__)

_CLEAR = 5.0
LISTING = 15.0  # seconds for a list that no job start waits for


class Uploads:
    """`timeout`: seconds for one checkpoint."""

    def __init__(self, local: DirectoryStore, bucket: Bucket, cache: Cache, timeout: float) -> None:
        self.local = local
        self.bucket = bucket
        self._cache = cache
        self._timeout = timeout
        # Once for each agent, a copy is told of, too: a controller may have lost its journal.
        self._heard: set[tuple[SessionId, int]] = set()
        self.under_way: tuple[SessionId, int] | None = None

    def send(self, session: SessionId, restarts: int, manifest: Manifest, folder: Path) -> None:
        """Everything it needs, the manifest last, from `folder`. Raises StoreUnavailable."""
        deadline = time.monotonic() + self._timeout
        prefix = f"{session}/"
        guard = f"{prefix}{GUARD}{restarts}"
        with fetch.answering(self.local.root):
            self.bucket.put(guard, folder / marks.MARK, deadline)
            self.bucket.drop_fragments(prefix, deadline)
            listing = min(deadline, time.monotonic() + LISTING)
            there = self.bucket.look_through(prefix, listing)
            proven = self._proven(session)
            for pack in manifest.packs:
                key = f"{prefix}{PACKS}/{pack.path}"
                if key in there and there[key].size == pack.size and pack.path in proven:
                    continue
                self.bucket.put(key, self.local.session_dir(session) / PACKS / pack.path, deadline)
            # An index that is in use is not written over: its manifest would be no checkpoint.
            index = fetch.index_key(session, restarts, manifest, there)
            self.bucket.put(index, folder / INDEX, deadline)
            self._complete(session, manifest, deadline)
            name = f"{prefix}{restarts}/{MANIFEST}"
            try:
                self.bucket.put(name, folder / MANIFEST, deadline)
            except BaseException:
                self._clear(name, there.get(name))
                raise
        with suppress(StoreUnavailable):
            self.bucket.remove(guard, deadline)
            for key in there:
                if key.startswith(f"{prefix}{restarts}/{INDEX}") and key != index:
                    self.bucket.remove(key, deadline)

    def _complete(self, session: SessionId, manifest: Manifest, deadline: float) -> None:
        """What it shares is still there: S1 must not hang on a collector's care alone. Of one that
        began before the guard was there, the last word may be yet to come when we looked first."""
        there = self.bucket.look_through(f"{session}/{PACKS}/", deadline)
        for pack in manifest.packs:
            key = f"{session}/{PACKS}/{pack.path}"
            if key not in there or there[key].size != pack.size:
                path = self.local.session_dir(session) / PACKS / pack.path
                self.bucket.put(key, path, deadline)

    def sends(self, session: SessionId) -> bool:
        """Whether something of it is on its way now."""
        return self.under_way is not None and self.under_way[0] == session

    def _proven(self, session: SessionId) -> set[str]:
        """Packs that were compared at the remote place by an earlier checkpoint of this node."""
        found: set[str] = set()
        for restarts in self.local.committed(session):
            folder = self.local.checkpoint_dir(session, restarts)
            if marks.read(folder) in marks.ELSEWHERE:
                with suppress(ReclaimError):
                    found |= {pack.path for pack in self.local.read(session, restarts).packs}
        return found

    def _clear(self, name: str, before: Held | None) -> None:
        """Where it can still be done: no half of a manifest in the place of one."""
        with suppress(StoreUnavailable):
            now = self.bucket.look(name)
            if now is not None and (before is None or now.checksum != before.checksum):
                self.bucket.remove(name, time.monotonic() + _CLEAR)

    def finish_all(self) -> int:
        """Upload what waits for it, the oldest first; how many were. Where some could not be, the
        first reason is raised after all were tried. Remains of commits that came to nothing go."""
        done, failed = 0, None
        for _, session, restarts in self._cache.marked(Mark.SENDING, Mark.PENDING):
            try:
                done += self._finish(session, restarts)
            except (ReclaimError, OSError) as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return done

    def _finish(self, session: SessionId, restarts: int) -> bool:
        """Upload one, while its session may be restored and dumped again. Whether it was."""
        folder = self.local.checkpoint_dir(session, restarts)
        frozen = folder.with_name(f"{fetch.UPLOADING}{restarts}")
        lock = self._cache.lock(session)
        if not lock.acquire(blocking=False):
            return False  # it is being committed or fetched; its turn comes
        try:
            mark = marks.read(folder) if exists(folder / MANIFEST) else None
            if mark is Mark.SENDING:
                self.withdraw(session, restarts)
            if mark is not Mark.PENDING:
                return False
            manifest = self.local.read(session, restarts)
            marks.write(folder, mark)  # there may be no word of it yet
            identity = fetch.copy(folder, frozen)
            self.under_way = (session, restarts)
        finally:
            lock.release()
        try:
            self.send(session, restarts, manifest, frozen)
            with self._cache.locked(session):
                # A session that was restored in place may have been saved again under its number.
                if fetch.identity(folder) != identity:
                    return False
                marks.write(folder, Mark.UPLOADED)
                return True
        finally:
            self.under_way = None
            shutil.rmtree(frozen, ignore_errors=True)

    def told(self) -> tuple[Upload, ...] | None:
        """What the controller has to know of; None where it can't be told."""
        states = {
            Mark.PENDING: UploadState.PENDING,
            Mark.UPLOADED: UploadState.UPLOADED,
            Mark.STORED: UploadState.STORED,
            Mark.COPY: UploadState.STORED,
        }
        try:
            self.local.check()
            here = {mark: self._cache.marked(mark) for mark in states}
            self._heard &= {(session, restarts) for _, session, restarts in here[Mark.COPY]}
            return tuple(
                Upload(str(session), restarts, state)
                for mark, state in states.items()
                for _, session, restarts in here[mark]
                if mark is not Mark.COPY or (session, restarts) not in self._heard
            )
        except (ReclaimError, OSError) as error:
            log.warning("uploads can't be told of: %s", error)
            return None

    def acknowledged(self, uploads: Sequence[Upload]) -> None:
        """The controller has written down that these are at the remote place."""
        for told in uploads:
            session = fetch.named(told.session)
            if session is None or told.state is UploadState.PENDING:
                continue
            lock = self._cache.lock(session)
            if not lock.acquire(blocking=False):
                continue  # it is being sent or fetched; reports don't wait for it, it is told again
            try:
                with suppress(ReclaimError, OSError):
                    folder = self.local.checkpoint_dir(session, told.restarts)
                    if marks.read(folder) in (Mark.UPLOADED, Mark.STORED):
                        marks.write(folder, Mark.COPY)
                    self._heard.add((session, told.restarts))
            finally:
                lock.release()

    def withdraw(self, session: SessionId, restarts: int) -> None:
        """It was never a checkpoint. Should its manifest have arrived at the remote place unseen,
        it is one from before the session went on: whole, and good for when the node is lost."""
        with suppress(ReclaimError, OSError):
            self._cache.drop(session, restarts)
