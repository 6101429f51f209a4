"""Checkpoints at a remote place, with a directory of this node for staging and as a cache.

The keys are the paths of the directory: `<cluster>/<session>/packs/...`, `<n>/index` and, last,
`<n>/manifest.json`. With `before` a checkpoint counts only when all of it is there and was
compared; else the node's copy is the checkpoint until it is, and the session can be restored on
this node only. What is uploaded is a cache here, and makes room when that is needed.

What the remote place does not answer is StoreUnavailable, never "none".
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from blake3 import blake3

from slurm_reclaim import ports
from slurm_reclaim.adapters.store import fetch, leases, marks
from slurm_reclaim.adapters.store.bucket import Bucket
from slurm_reclaim.adapters.store.cache import Cache
from slurm_reclaim.adapters.store.copies import Copies
from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.adapters.store.files import MANIFEST, exists
from slurm_reclaim.adapters.store.marks import Mark
from slurm_reclaim.adapters.store.records import write_durably
from slurm_reclaim.adapters.store.seal import STORE_ID, store_id
from slurm_reclaim.adapters.store.staging import Opened, Staging
from slurm_reclaim.adapters.store.uploads import LISTING, Uploads
from slurm_reclaim.errors import IntegrityError, StoreUnavailable
from slurm_reclaim.model.checkpoint import STORE_MARKER, Contents, Credentials, Manifest
from slurm_reclaim.model.ids import SessionId

log = logging.getLogger(__name__)

_PROBE_EVERY = 30.0


class RemoteStore:
    """Fulfils ports.NodeStore; one process on a node. Raises what DirectoryStore raises."""

    def __init__(
        self,
        local: DirectoryStore,
        bucket: Bucket,
        work: Path,
        *,
        before: bool,
        timeout: float,
        min_free: int = 0,
    ) -> None:
        """`work` and `min_free` are those of `local`. `timeout`: seconds for one checkpoint's way
        there, and for one's way back."""
        self.local = local
        self.bucket = bucket
        self.root = local.root
        self.timeout = timeout
        self._work = work
        self._before = before
        self.cache = Cache(local, work, min_free)
        self.uploads = Uploads(local, bucket, self.cache, timeout)
        self.copies = Copies(local, bucket, self.cache)
        self._probed = 0.0
        self._trouble = ""
        self._named = False
        self.wake: Callable[[], None] = lambda: None
        """Called when there is something to upload."""

    # -- room and readiness -------------------------------------------------------------------

    def check(self) -> int:
        """Free bytes here. Where checkpoints don't count before they are at the remote place, it
        has to answer, too."""
        self.name()
        free = self.local.check()
        if self._before and (trouble := self.remote_problem()):
            raise StoreUnavailable(trouble)
        return free

    def name(self) -> None:
        """Seals are for one store: all nodes know this one by the name of its remote place."""
        if self._named:
            return
        name = blake3(self.bucket.url.encode()).hexdigest(length=16)
        with fetch.answering(self.root):
            if not exists(self.root / STORE_MARKER):
                return
            if not exists(self.root / STORE_ID):
                write_durably(self.root / STORE_ID, f"{name}\n".encode())
        if store_id(self.root) != name:
            raise StoreUnavailable(
                f"{self.root} was a store by itself, or of another remote place",
                hint=f"give {self.bucket.url} an empty directory of its own",
            )
        self._named = True

    def remote_problem(self) -> str:
        """Why the remote place can't be used, as of a moment ago; "" where it can."""
        if time.monotonic() - self._probed > _PROBE_EVERY or not self._probed:
            try:
                self.marked()
                self._trouble = ""
            except StoreUnavailable as error:
                self._trouble = error.message
            self._probed = time.monotonic()
        return self._trouble

    def marked(self, deadline: float = 0.0) -> None:
        """See that the remote place answers, and is a store: in one try, or as many as there is
        time for until `deadline`. Raises StoreUnavailable."""
        look = self.bucket
        if not (look.there(STORE_MARKER, deadline) if deadline else look.exists(STORE_MARKER)):
            raise StoreUnavailable(
                f"{self.bucket.url} is no checkpoint store: there is no {STORE_MARKER} in it",
                hint=f"is store.remote right? In a new store, put an empty object {STORE_MARKER}",
            )

    def reserve(self, size: int) -> None:
        """Room on this node; copies of what is uploaded make way for it."""
        self.cache.make_room(size)
        self.local.reserve(size)
        if self._before:
            self.marked()

    # -- on the way in ------------------------------------------------------------------------

    def staging(self, session: SessionId, restarts: int) -> Path:
        return self.local.staging(session, restarts)

    def stage(
        self,
        session: SessionId,
        restarts: int,
        owner: Credentials,
        note: Callable[[int], None] = lambda _: None,
    ) -> Staging:
        self.name()
        with self.cache.locked(session):
            return self.local.stage(session, restarts, owner, note)

    def discard(self, folder: Path) -> None:
        self.local.discard(folder)

    def commit(
        self,
        staged: ports.Staging,
        session: SessionId,
        restarts: int,
        describe: Callable[[Contents], Manifest],
    ) -> Manifest:
        """With `before`, a failure to upload takes back what was committed on the node."""
        with self.cache.locked(session):
            with fetch.answering(self.root):
                marks.begin(staged.folder, Mark.SENDING if self._before else Mark.PENDING)
            manifest = self.local.commit(staged, session, restarts, describe)
            if self._before:
                try:
                    folder = self.local.checkpoint_dir(session, restarts)
                    self.uploads.send(session, restarts, manifest, folder)
                    marks.write(folder, Mark.STORED)
                except BaseException:
                    self.uploads.withdraw(session, restarts)
                    raise
        self.wake()
        return manifest

    # -- on the way out -----------------------------------------------------------------------

    def open(self, session: SessionId, restarts: int) -> Opened:
        """From the copy here, which is fetched first where it is not whole."""
        self.name()
        with self.cache.locked(session):
            folder = self.local.checkpoint_dir(session, restarts)
            if self._whole(folder):
                try:
                    return self._opened(session, restarts)
                except IntegrityError as error:
                    if marks.read(folder) not in marks.ELSEWHERE:
                        raise
                    log.warning("the copy of %s/%s here is damaged: %s", session, restarts, error)
                    with fetch.answering(self.root):
                        self.cache.drop(session, restarts)
            self._fetch(session, restarts)
            return self.local.open(session, restarts)

    def _opened(self, session: SessionId, restarts: int) -> Opened:
        """Of a copy that may be damaged: what it needs is there, or IntegrityError."""
        opened = self.local.open(session, restarts)
        try:
            opened.ready()
        except BaseException:
            opened.close()
            raise
        return opened

    def _whole(self, folder: Path) -> bool:
        with fetch.answering(self.root):
            return exists(folder / MANIFEST) and marks.read(folder) in marks.WHOLE

    def _fetch(self, session: SessionId, restarts: int) -> None:
        deadline = time.monotonic() + self.timeout
        with leases.reading(self.bucket, session):
            self._fetch_leased(session, restarts, deadline)

    def _fetch_leased(self, session: SessionId, restarts: int, deadline: float) -> None:
        listing = min(deadline, time.monotonic() + LISTING)
        there = self.bucket.look_through(f"{session}/", listing)
        manifest = self._fetch_manifest(session, restarts, there, deadline)
        missing = fetch.missing(self.local, session, manifest)
        self.cache.make_room(sum(part.size for part in missing))
        self.local.reserve(sum(part.size for part in missing))
        with fetch.answering(self.root):
            fetch.contents(self.bucket, self.local, session, manifest, there, deadline)
        marks.write(self.local.checkpoint_dir(session, restarts), Mark.COPY)

    def _fetch_manifest(
        self, session: SessionId, restarts: int, there: fetch.Listing, deadline: float
    ) -> Manifest:
        with fetch.answering(self.root):
            fetch.manifest(self.bucket, self.local, session, restarts, there, deadline)
        try:
            manifest = self.local.read(session, restarts)
            fetch.plain(manifest)
            return manifest
        except IntegrityError:
            shutil.rmtree(self.local.checkpoint_dir(session, restarts), ignore_errors=True)
            raise

    def read(self, session: SessionId, restarts: int) -> Manifest:
        """The manifest; what is not here is fetched and stays."""
        self.name()
        with self.cache.locked(session):
            folder = self.local.checkpoint_dir(session, restarts)
            if self._whole(folder):
                return self.local.read(session, restarts)
            deadline = time.monotonic() + LISTING
            there = self.bucket.list(f"{session}/")
            return self._fetch_manifest(session, restarts, there, deadline)

    def committed(self, session: SessionId) -> list[int]:
        """Restart counts with a committed checkpoint here or there, oldest first. While a copy
        here waits for its upload there can be no newer one elsewhere."""
        here = self.pending(session)
        if here:
            return sorted({*here, *self._known(session)})
        return sorted(fetch.numbers(self.bucket.list(f"{session}/")).get(session.folder, ()))

    def pending(self, session: SessionId) -> set[int]:
        """Those of which this node has the only copy."""
        with fetch.answering(self.root):
            return {
                n
                for n in self.local.committed(session)
                if marks.read(self.local.checkpoint_dir(session, n)) is Mark.PENDING
            }

    def _known(self, session: SessionId) -> set[int]:
        """Those here of which the remote place has, or had, another copy."""
        with fetch.answering(self.root):
            return {
                n
                for n in self.local.committed(session)
                if marks.read(self.local.checkpoint_dir(session, n)) in marks.ELSEWHERE
            }

    def committed_here(self, session: SessionId, restarts: int) -> bool:
        """Whether this node committed what it dumped under this number: asked of the node alone,
        since a frozen tree can't wait for the network."""
        folder = self.local.checkpoint_dir(session, restarts)
        return self.local.committed_here(session, restarts) and self._whole(folder)

    def of_job(self, job_id: int, uid: int) -> list[str]:
        """Asked at every job start: two short questions at most."""
        here = [name for name in self.local.of_job(job_id, uid) if self.pending(fetch.sure(name))]
        if here:
            return here
        self.marked()
        cluster = self.local.base.name
        there = fetch.numbers(self.bucket.list(f"{cluster}/{job_id}.{uid}."))
        return sorted(
            f"{cluster}/{folder}" for folder in there if fetch.named(f"{cluster}/{folder}")
        )
