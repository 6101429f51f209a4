"""Copies on this node of what was deleted at the remote place: they go, too."""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from slurm_reclaim.adapters.store import fetch, marks
from slurm_reclaim.adapters.store.bucket import Bucket
from slurm_reclaim.adapters.store.cache import Cache
from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.errors import ReclaimError
from slurm_reclaim.model.checkpoint import STORE_MARKER
from slurm_reclaim.model.ids import SessionId

log = logging.getLogger(__name__)

EVERY = 3600.0  # seconds between two looks
# A remote place that has lost what it should have shows no more than one from which it was
# deleted: while it may be the former, the copy here may be the last.
ABSENT_FOR = 86400.0  # seconds
_PATIENCE = 30.0


class Copies:
    """Never one that is not uploaded, nor one that is read or written."""

    def __init__(self, local: DirectoryStore, bucket: Bucket, cache: Cache) -> None:
        self._local = local
        self._bucket = bucket
        self._cache = cache
        self._absent: dict[tuple[SessionId, int], float] = {}
        self._looked = 0.0

    def drop_deleted(self, now: float) -> int:
        """How many have gone, at most one look in `EVERY` seconds; `now`: of time.monotonic. One
        goes at once where the remote place has a newer checkpoint of that session, else when it was
        absent at every look for `ABSENT_FOR`. Raises StoreUnavailable."""
        if self._looked and now - self._looked < EVERY:
            return 0
        self._looked = now
        here: dict[SessionId, set[int]] = {}
        for _, session, restarts in self._cache.marked(*marks.ELSEWHERE):
            here.setdefault(session, set()).add(restarts)
        if not here or not self._bucket.there(STORE_MARKER, time.monotonic() + _PATIENCE):
            return 0
        dropped, absent = 0, {}
        for session, numbers in here.items():
            listing = self._bucket.look_through(f"{session}/", time.monotonic() + _PATIENCE)
            there = fetch.numbers(listing).get(session.folder, set())
            for restarts in numbers - there:
                since = self._absent.get((session, restarts), now)
                absent[session, restarts] = since
                if any(n > restarts for n in there) or now - since >= ABSENT_FOR:
                    dropped += self._drop(session, restarts)
        self._absent = absent
        return dropped

    def _drop(self, session: SessionId, restarts: int) -> bool:
        with suppress(ReclaimError, OSError):
            if self._cache.forget(session, restarts):
                log.info("the copy of %s/%s is gone as what it copied", session, restarts)
                return True
        return False
