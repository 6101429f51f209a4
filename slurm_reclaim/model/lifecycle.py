"""The life of a session: the one table that says which fact leads from which state to which.

One truth at a time: until `checkpoint_committed` the process tree is the session, after it the
image is, and `restore_succeeded` gives it back to the tree.
"""

from __future__ import annotations

from enum import Enum

from slurm_reclaim.errors import IllegalTransition


class State(str, Enum):
    ACTIVE = "ACTIVE"
    IDLE = "IDLE"
    WARNED = "WARNED"
    HIBERNATING = "HIBERNATING"
    REQUEUING = "REQUEUING"
    HIBERNATED = "HIBERNATED"
    QUEUED = "QUEUED"
    RESTORING = "RESTORING"
    FAILED = "FAILED"
    ENDED = "ENDED"

    def __str__(self) -> str:
        return self.value


class Fact(str, Enum):
    """Something seen, never something hoped for."""

    IDLE_CONFIRMED = "idle-confirmed"
    ACTIVITY_SEEN = "activity-seen"
    NOTICE_DELIVERED = "notice-delivered"
    PREFLIGHT_REFUSED = "preflight-refused"
    WITHDRAWN = "withdrawn"
    DEADLINE_PASSED = "deadline-passed"
    HIBERNATE_ASKED = "hibernate-asked"
    DUMP_FAILED = "dump-failed"
    CHECKPOINT_COMMITTED = "checkpoint-committed"
    REQUEUE_OBSERVED = "requeue-observed"
    REQUEUE_REFUSED = "requeue-refused"
    RELEASED = "released"
    HELD_AGAIN = "held-again"
    JOB_STARTED = "job-started"
    RESTORE_SUCCEEDED = "restore-succeeded"
    RESTORE_FAILED = "restore-failed"
    RESTORE_IMPOSSIBLE = "restore-impossible"
    NODE_LOST = "node-lost"
    RETENTION_EXPIRED = "retention-expired"
    JOB_GONE = "job-gone"

    def __str__(self) -> str:
        return self.value


S, F = State, Fact
RUNNING_STATES = frozenset({S.ACTIVE, S.IDLE, S.WARNED})
IMAGE_STATES = frozenset({S.REQUEUING, S.HIBERNATED, S.QUEUED, S.RESTORING, S.FAILED})
LIVE_STATES = frozenset(set(S) - {S.ENDED})

TABLE: dict[tuple[State, Fact], State] = {
    (S.ACTIVE, F.IDLE_CONFIRMED): S.IDLE,
    (S.IDLE, F.ACTIVITY_SEEN): S.ACTIVE,
    (S.IDLE, F.NOTICE_DELIVERED): S.WARNED,
    (S.IDLE, F.PREFLIGHT_REFUSED): S.ACTIVE,
    (S.IDLE, F.WITHDRAWN): S.ACTIVE,
    (S.WARNED, F.WITHDRAWN): S.ACTIVE,
    (S.WARNED, F.PREFLIGHT_REFUSED): S.ACTIVE,
    (S.WARNED, F.ACTIVITY_SEEN): S.ACTIVE,
    (S.WARNED, F.DEADLINE_PASSED): S.HIBERNATING,
    **{(s, F.HIBERNATE_ASKED): S.HIBERNATING for s in RUNNING_STATES},
    (S.HIBERNATING, F.PREFLIGHT_REFUSED): S.ACTIVE,
    (S.HIBERNATING, F.DUMP_FAILED): S.ACTIVE,
    (S.HIBERNATING, F.ACTIVITY_SEEN): S.ACTIVE,
    (S.HIBERNATING, F.CHECKPOINT_COMMITTED): S.REQUEUING,
    (S.REQUEUING, F.REQUEUE_OBSERVED): S.HIBERNATED,
    (S.REQUEUING, F.REQUEUE_REFUSED): S.RESTORING,
    (S.HIBERNATED, F.RELEASED): S.QUEUED,
    (S.HIBERNATED, F.JOB_STARTED): S.RESTORING,
    (S.QUEUED, F.JOB_STARTED): S.RESTORING,
    (S.QUEUED, F.HELD_AGAIN): S.HIBERNATED,
    (S.RESTORING, F.RESTORE_SUCCEEDED): S.ACTIVE,
    (S.RESTORING, F.RESTORE_FAILED): S.HIBERNATED,
    **{(s, F.RESTORE_IMPOSSIBLE): S.FAILED for s in (S.HIBERNATED, S.QUEUED, S.RESTORING)},
    **{(s, F.NODE_LOST): S.QUEUED for s in RUNNING_STATES | {S.HIBERNATING, S.RESTORING}},
    (S.HIBERNATED, F.RETENTION_EXPIRED): S.ENDED,
    **{(s, F.JOB_GONE): S.ENDED for s in LIVE_STATES},
}


def follow(state: State, fact: Fact) -> State:
    """The state that `fact` leads to from `state`. Raises IllegalTransition."""
    try:
        return TABLE[state, fact]
    except KeyError:
        raise IllegalTransition(f"{fact} can't happen to a session that is {state}") from None
