"""What lies at a remote place, whoever put it there: one list, and each manifest read once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from slurm_reclaim.adapters.store import fetch, leases
from slurm_reclaim.adapters.store.answers import Held
from slurm_reclaim.adapters.store.bucket import Bucket
from slurm_reclaim.adapters.store.collection import PAGE, READING, session_id
from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.adapters.store.files import MANIFEST
from slurm_reclaim.adapters.store.names import Names, begun, committed, packs, size_below
from slurm_reclaim.errors import IntegrityError
from slurm_reclaim.model.catalogue import StoredCheckpoint, StoredSession
from slurm_reclaim.model.checkpoint import Manifest
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.retention import EXPIRED

# For one look, or one deletion: less than the controller waits for the answer (stages/shelf.py).
PATIENCE = 90.0  # seconds
_AT_ONCE = 8  # manifests on their way at the same time


class RemoteCatalogue:
    """Raises StoreUnavailable; IntegrityError where that is said."""

    def __init__(self, local: DirectoryStore, bucket: Bucket) -> None:
        """`local` has the keys of the seals."""
        self._local = local
        self._bucket = bucket
        self._cluster = local.base.name
        # What a manifest said that the server still holds: key -> the object, and that.
        self._known: dict[str, tuple[Held, StoredCheckpoint]] = {}

    def catalogue(self, after: str = "", most: int = PAGE) -> tuple[list[StoredSession], str]:
        """As Collection.catalogue."""
        deadline = time.monotonic() + PATIENCE
        sessions = self.by_session(self._bucket.look_through(f"{self._cluster}/", deadline))
        gone = self._known.keys() - {f"{i}/{name}" for i, names in sessions for name in names}
        for key in gone:
            del self._known[key]
        now = self.now([names for _, names in sessions], deadline)
        page: list[tuple[SessionId, Names]] = []
        count, end = 0, ""
        for id, names in sessions:
            if id.folder <= after:
                continue
            if count >= most:
                end = page[-1][0].folder
                break
            page.append((id, names))
            count += 1 + len(names)
        self._learn(page, deadline)
        found = [self._stored(id, names, now, deadline) for id, names in page]
        return [one for one in found if one.checkpoints or one.packs or one.leftovers], end

    def by_session(self, listing: fetch.Listing) -> list[tuple[SessionId, Names]]:
        """In order of their folders' names, what is below each."""
        found: dict[str, Names] = {}
        for key, held in listing.items():
            _, folder, *rest = key.split("/", 2)
            if rest:
                found.setdefault(folder, {})[rest[0]] = held
        named = ((session_id(self._cluster, folder), found[folder]) for folder in sorted(found))
        return [(id, names) for id, names in named if id is not None]

    def of(self, id: SessionId, deadline: float) -> Names:
        """What is there of one session."""
        prefix = f"{id}/"
        listing = self._bucket.look_through(prefix, deadline)
        return {key.removeprefix(prefix): held for key, held in listing.items()}

    def now(self, sessions: list[Names], deadline: float) -> float:
        """By the server's clock, which is asked only where there is something to date."""
        dated = any(
            name.startswith((READING, leases.GUARD)) for names in sessions for name in names
        )
        return self._bucket.now(deadline) if dated else time.time()

    def _learn(self, page: list[tuple[SessionId, Names]], deadline: float) -> None:
        """Have the manifests read that are not known yet, several at once."""
        wanted = [
            (id, number, names)
            for id, names in page
            for number in committed(names)
            if self._remembered(id, number, names) is None
        ]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            done = [pool.submit(self.checkpoint, *each, deadline) for each in wanted]
            try:
                for each in done:
                    each.result()
            finally:
                for each in done:
                    each.cancel()

    def _stored(self, id: SessionId, names: Names, now: float, deadline: float) -> StoredSession:
        numbers, sent = committed(names), leases.on_their_way(names, now)
        left = {n for n in begun(names) if n not in numbers and n not in sent}
        words = [n for n in names if n.startswith((READING, leases.GUARD))]
        return StoredSession(
            session=str(id),
            checkpoints=tuple(self.checkpoint(id, n, names, deadline) for n in numbers),
            packs=tuple(packs(names)),
            leftovers=(*(f"{EXPIRED}{n}" for n in sorted(left)), *sorted(words)),
            leftover_bytes=sum(size_below(names, n) for n in left),
        )

    def _remembered(self, id: SessionId, number: int, names: Names) -> StoredCheckpoint | None:
        held, known = self._known.get(f"{id}/{number}/{MANIFEST}", (None, None))
        return known if held == names[f"{number}/{MANIFEST}"] else None

    def checkpoint(
        self, id: SessionId, restarts: int, names: Names, deadline: float
    ) -> StoredCheckpoint:
        """One that is among `names`; its manifest is read where it is not known."""
        if (known := self._remembered(id, restarts, names)) is not None:
            return known
        size = size_below(names, restarts)
        try:
            manifest, _ = self.manifest(id, restarts, names, deadline)
        except IntegrityError as error:
            return StoredCheckpoint(restarts, bytes=size, problem=error.message)
        said = StoredCheckpoint(
            restarts=restarts,
            created=manifest.created,
            bytes=size,
            packs=tuple(sorted(part.path for part in manifest.packs)),
            user=manifest.user,
            node=manifest.node,
            reason=manifest.reason,
        )
        self._known[f"{id}/{restarts}/{MANIFEST}"] = names[f"{restarts}/{MANIFEST}"], said
        return said

    def manifest(
        self, id: SessionId, restarts: int, names: Names, deadline: float
    ) -> tuple[Manifest, bytes]:
        """The manifest, and the object it was read from. IntegrityError where there is none, or
        where it is not to be believed."""
        name = f"{restarts}/{MANIFEST}"
        where = f"{self._bucket.url}/{id}/{name}"
        if name not in names:
            raise IntegrityError(
                f"there is no committed checkpoint {self._bucket.url}/{id}/{restarts}"
            )
        if names[name].size > fetch.MOST_MANIFEST:
            raise IntegrityError(f"{where} is too large for a manifest")
        try:
            raw = self._bucket.take(f"{id}/{name}", names[name].size, deadline)
        except FileNotFoundError:
            raise IntegrityError(f"{where} is listed and not there") from None
        manifest = self._local.believed(raw, id, restarts, where)
        fetch.plain(manifest)
        return manifest, raw
