"""The port of a store that grows old: what the agent's orders and the command line do to all of it,
whichever store it is. Fulfilled by Collection and RemoteCollection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slurm_reclaim.model.catalogue import StoredPart, StoredSession
from slurm_reclaim.model.checkpoint import Manifest, Part
from slurm_reclaim.model.ids import SessionId


@dataclass(frozen=True, slots=True)
class Source:
    """A committed checkpoint to be taken out of the store: its `manifest`, the bytes as they are
    `sealed`, and each part of it `at_hand` as a file while one is inside. `at_hand` raises
    IntegrityError where it is not what was written."""

    manifest: Manifest
    sealed: bytes
    at_hand: Callable[[Part], AbstractContextManager[Path]]


class Stock(Protocol):
    """All that lies in the store of one `cluster`, whichever node put it there, as any agent can
    see it. Blocking. StoreUnavailable: what was asked is not known, nothing is taken for gone."""

    cluster: str

    def ready(self) -> None:
        """See that the store is one and answers."""
        ...

    def catalogue(self, after: str = "") -> tuple[Sequence[StoredSession], str]:
        """Sessions in order of their folders' names, from the one that follows `after`; and the
        name to go on after ("": these were the last)."""
        ...

    def of_job(self, job_id: int) -> Mapping[SessionId, Sequence[int]]:
        """Sessions of a job that have checkpoints, with the restart counts of these."""
        ...

    def parts(self, id: SessionId, restarts: int) -> Sequence[StoredPart]:
        """The files of a checkpoint, packs last. IntegrityError where there is none."""
        ...

    def verify(self, id: SessionId, restarts: int) -> Sequence[str]:
        """Read every byte again where it is stored; what differs from the manifest, by name.
        IntegrityError where there is no checkpoint or its manifest can't be read."""
        ...

    def source(self, id: SessionId, restarts: int) -> AbstractContextManager[Source]: ...

    def expire(self, id: SessionId, restarts: Collection[int], *, ended: bool) -> int:
        """Delete these checkpoints, what an earlier deletion left, and packs that nobody needs; of
        an `ended` session without further checkpoints, everything. Bytes freed. WrongState where
        somebody reads the session, or for the newest checkpoint of one that has not ended; nothing
        is deleted then."""
        ...
