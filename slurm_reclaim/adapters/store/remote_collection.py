"""What is done to a remote store that has grown old: looked through, read again, thinned out.

A checkpoint is there while its manifest is: a deletion begins with it, and what is left of a number
without a manifest, and not on its way, is known for what it is by whoever comes after an
interruption. Packs go last, and only those that no manifest of the session names any more. Two
collectors at once do no harm: each takes what is gone already for done.

Who reads or sends says so beside the checkpoints (leases.py). What the remote place does not answer
is StoreUnavailable, and nothing is deleted or called missing for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from collections.abc import Collection as Some
from contextlib import AbstractContextManager, contextmanager, suppress

from slurm_reclaim.adapters.store import leases
from slurm_reclaim.adapters.store.collection import (
    PAGE,
    Collection,
    difference,
    session_ids,
)
from slurm_reclaim.adapters.store.directory import PACKS
from slurm_reclaim.adapters.store.files import MANIFEST
from slurm_reclaim.adapters.store.names import Names, begun, below, committed, packs
from slurm_reclaim.adapters.store.remote import RemoteStore
from slurm_reclaim.adapters.store.remote_catalogue import PATIENCE, RemoteCatalogue
from slurm_reclaim.adapters.store.reread import at_hand, sweep
from slurm_reclaim.adapters.store.stock import Source
from slurm_reclaim.errors import ReclaimError, StoreUnavailable, WrongState
from slurm_reclaim.model.catalogue import (
    StoredPart,
    StoredSession,
    is_older,
)
from slurm_reclaim.model.checkpoint import Part
from slurm_reclaim.model.ids import SessionId

log = logging.getLogger(__name__)

_MARKER = 15.0  # seconds to see that it is a store
# Words about a session are looked for again after so many seconds of deleting.
_LOOK_AGAIN = 5.0


class RemoteCollection:
    """Fulfils Stock. Raises StoreUnavailable."""

    def __init__(self, store: RemoteStore, who: str) -> None:
        self._store = store
        self._who = who
        self._local = store.local
        self._bucket = store.bucket
        self._catalogue = RemoteCatalogue(store.local, store.bucket)
        self.cluster = store.local.base.name
        sweep(store.root)

    # -- looking ------------------------------------------------------------------------------

    def ready(self) -> None:
        """See that both places are stores, and answer."""
        self._store.name()
        self._local.check()
        self._store.marked(time.monotonic() + _MARKER)

    def of_job(self, job_id: int) -> dict[SessionId, list[int]]:
        """As Collection.of_job; what waits on this node for its upload is there as well."""
        deadline = time.monotonic() + PATIENCE
        listing = self._bucket.look_through(f"{self.cluster}/{job_id}.", deadline)
        found = {id: set(committed(names)) for id, names in self._catalogue.by_session(listing)}
        for id in session_ids(self._local.base):
            if id.job_id == job_id and (waiting := self._store.pending(id)):
                found[id] = found.get(id, set()) | waiting
        return {id: sorted(numbers) for id, numbers in found.items() if numbers}

    def catalogue(self, after: str = "", most: int = PAGE) -> tuple[list[StoredSession], str]:
        """As Collection.catalogue."""
        self.ready()
        return self._catalogue.catalogue(after, most)

    def parts(self, id: SessionId, restarts: int) -> list[StoredPart]:
        """As Collection.parts."""
        self.ready()
        deadline = time.monotonic() + PATIENCE
        names = self._catalogue.of(id, deadline)
        manifest, _ = self._catalogue.manifest(id, restarts, names, deadline)
        others = {
            n: self._catalogue.checkpoint(id, n, names, deadline).packs
            for n in committed(names)
            if n != restarts
        }
        found = [StoredPart(part.path, part.size) for part in manifest.contents.parts]
        for part in manifest.packs:
            also = tuple(n for n in sorted(others) if part.path in others[n])
            found.append(StoredPart(f"{PACKS}/{part.path}", part.size, also))
        return found

    # -- reading again ------------------------------------------------------------------------

    def verify(self, id: SessionId, restarts: int) -> list[str]:
        """As Collection.verify; every byte comes from the remote place, whatever lies here."""
        self.ready()
        with self._there(id, restarts) as source:

            def read(part: Part) -> Callable[[], None]:
                def once() -> None:
                    with source.at_hand(part):
                        pass

                return once

            every = (*source.manifest.contents.parts, *source.manifest.packs)
            return [problem for part in every if (problem := difference(read(part)))]

    @contextmanager
    def source(self, id: SessionId, restarts: int) -> Iterator[Source]:
        """As Collection.source. What waits here for its upload is taken from here."""
        if restarts in self._store.pending(id):
            with Collection(self._local, self._who).source(id, restarts) as here:
                yield here
            return
        with self._there(id, restarts) as there:
            yield there

    @contextmanager
    def _there(self, id: SessionId, restarts: int) -> Iterator[Source]:
        with self.reading(id):
            names = self._catalogue.of(id, time.monotonic() + PATIENCE)
            deadline = time.monotonic() + PATIENCE
            manifest, sealed = self._catalogue.manifest(id, restarts, names, deadline)
            yield Source(
                manifest, sealed, lambda part: at_hand(self._store, id, manifest, part, names)
            )

    def reading(self, id: SessionId) -> AbstractContextManager[None]:
        """As Collection.reading."""
        return leases.reading(self._bucket, id)

    # -- deleting -----------------------------------------------------------------------------

    def expire(self, id: SessionId, restarts: Some[int], *, ended: bool) -> int:
        """As Collection.expire. A copy of them on this node goes, too."""
        self.ready()
        deadline = time.monotonic() + PATIENCE
        with self._alone(id):
            names = self._catalogue.of(id, deadline)
            now = self._catalogue.now([names], deadline)
            self._refuse(id, restarts, names, now, ended)
            removed, after = self._take_away(id, restarts, names, deadline)
            now = self._catalogue.now([after], deadline)
            sent = leases.on_their_way(after, now)
            left = set(committed(after)) - set(removed)
            going = [n for n in begun(after) if n not in left and n not in sent]
            freed = self._drop(id, [k for n in going for k in below(after, n)], after, deadline)
            if ended and not left and not sent:
                rest = [k for k in after if not k.startswith(tuple(f"{n}/" for n in going))]
                freed += self._drop(id, rest, after, deadline)
            elif left and not sent:
                freed += self._drop_packs(id, left, after, deadline)
            if not sent:
                self._bucket.drop_fragments(f"{id}/", deadline)
        for number in removed:
            self._forget(id, number)
        return freed

    @contextmanager
    def _alone(self, id: SessionId) -> Iterator[None]:
        """Nothing of the session is fetched or committed on this node meanwhile."""
        lock = self._store.cache.lock(id)
        if not lock.acquire(blocking=False):
            raise WrongState(f"{id} is being read or written on this node")
        try:
            if self._store.uploads.sends(id):
                raise WrongState(f"{id} is being sent by this node")
            yield
        finally:
            lock.release()

    def _refuse(
        self, id: SessionId, restarts: Some[int], names: Names, now: float, ended: bool
    ) -> None:
        numbers = committed(names)
        if not ended and numbers and max(numbers) in restarts:
            raise WrongState(f"{id}: {max(numbers)} is the newest checkpoint and may be needed")
        if reader := leases.reader(names, now, self._store.timeout):
            raise WrongState(f"{id} is being read by {reader}")

    def _take_away(
        self, id: SessionId, restarts: Some[int], names: Names, deadline: float
    ) -> tuple[list[int], Names]:
        """The manifests: from here on these are no checkpoints. Which they were, and what was seen
        before and after."""
        kept: dict[int, bytes] = {}
        for number in sorted(set(restarts) & set(committed(names))):
            name = f"{number}/{MANIFEST}"
            try:
                kept[number] = self._bucket.take(f"{id}/{name}", names[name].size, deadline)
            except FileNotFoundError:
                continue  # by another collector
            self._bucket.remove(f"{id}/{name}", deadline)
        after = self._catalogue.of(id, deadline)
        now = self._catalogue.now([after], deadline)
        if reader := leases.reader(after, now, self._store.timeout):
            # It came between the look and the removal.
            for number, raw in kept.items():
                self._put_back(id, number, raw, names, after)
            raise WrongState(f"{id} is being read by {reader}")
        removed = [number for number in sorted(restarts) if f"{number}/{MANIFEST}" in names]
        return removed, names | after

    def _put_back(
        self, id: SessionId, number: int, raw: bytes, before: Names, after: Names
    ) -> None:
        """Unless there is another one in its place: a list that lags behind still shows the old."""
        name = f"{number}/{MANIFEST}"
        if after.get(name) not in (None, before[name]):
            return
        try:
            self._bucket.write(f"{id}/{name}", raw, time.monotonic() + PATIENCE)
        except StoreUnavailable as error:
            log.error("%s/%s is no checkpoint any more: %s", id, number, error.message)
            raise

    def _drop_packs(self, id: SessionId, left: set[int], names: Names, deadline: float) -> int:
        """As Collection._drop_packs."""
        staying = [self._catalogue.checkpoint(id, n, names, deadline) for n in left]
        if any(each.problem for each in staying):
            return 0
        wanted = {name for each in staying for name in each.packs}
        return self._drop(
            id,
            [
                f"{PACKS}/{pack.name}"
                for pack in packs(names)
                if pack.name not in wanted and is_older(pack.name, max(left))
            ],
            names,
            deadline,
        )

    def _drop(self, id: SessionId, going: list[str], names: Names, deadline: float) -> int:
        """Bytes freed. Ends early where somebody begins to send or to read: what is left is found
        again."""
        freed, looked = 0, time.monotonic()
        for name in going:
            if time.monotonic() - looked > _LOOK_AGAIN:
                after = self._catalogue.of(id, deadline)
                now, looked = self._catalogue.now([after], deadline), time.monotonic()
                reader = leases.reader(after, now, self._store.timeout)
                if reader or leases.on_their_way(after, now):
                    raise WrongState(f"{id} is being read or sent by another node")
            self._bucket.remove(f"{id}/{name}", deadline)
            freed += names[name].size
        return freed

    def _forget(self, id: SessionId, number: int) -> None:
        # Else it goes when room is needed (cache.py), or by the next look (copies.py).
        with suppress(ReclaimError, OSError):
            self._store.cache.forget(id, number)
