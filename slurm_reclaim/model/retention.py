"""What is known of the sessions in the store, and what is to become of their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from slurm_reclaim.model.catalogue import Announced

# How the name of a checkpoint begins whose deletion has begun (adapters/store/collection.py).
EXPIRED = ".expired-"


class Standing(str, Enum):
    """What is known of a session that lies in the store. `ended`: positively, and Slurm no longer
    shows its job; `alive`: its processes run; `held`: its image is all there is of it; `busy`: it
    is being saved or restored; `failed`: it waits for an admin; `unknown`: it can't be told now;
    `orphan`: the journal has never heard of it."""

    ENDED = "ended"
    ALIVE = "alive"
    HELD = "held"
    BUSY = "busy"
    FAILED = "failed"
    UNKNOWN = "unknown"
    ORPHAN = "orphan"


@dataclass(frozen=True, slots=True)
class Known:
    """`since` Unix seconds of the last transition (the end, the hibernation); `why`: a sentence
    where it is unknown; `uid` and `user` of the owner; `checkpoint`: the restart count of the one
    that it would be restored from (-1: none)."""

    standing: Standing
    since: float
    uid: int
    user: str = ""
    why: str = ""
    checkpoint: int = -1
    announced: Announced | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one checkpoint. `due` Unix seconds from which it may go by age (0: it never
    goes by age); `reason` is a sentence for people."""

    session: str
    restarts: int
    expire: bool
    reason: str
    due: float = 0.0


@dataclass(frozen=True, slots=True)
class Expiry:
    """Checkpoints of one session that go, oldest first; `ended`: so has the session, and what is
    left of it goes with its last checkpoint."""

    session: str
    restarts: tuple[int, ...]
    ended: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Notify:
    """The owner of a held session is to be told that it ends at `deadline` (Unix seconds), for the
    `times`-th time."""

    session: str
    deadline: float
    times: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`expiries` in the order in which they go; `notify` who is told now; `retire` held sessions
    whose deadline has passed; `used` bytes by uid, `total` of all."""

    verdicts: Mapping[tuple[str, int], Verdict] = field(default_factory=dict)
    expiries: tuple[Expiry, ...] = ()
    notify: tuple[Notify, ...] = ()
    retire: tuple[str, ...] = ()
    used: Mapping[int, int] = field(default_factory=dict)
    total: int = 0
