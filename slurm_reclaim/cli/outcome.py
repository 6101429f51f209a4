"""When has what was asked for come to its end, and how did it end? Pure.

Told apart by the state first, and by the newest event since the request where the state alone
does not say why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_reclaim.errors import (
    CancelledByActivity,
    DumpFailed,
    NotReclaimable,
    OperationFailed,
    ReclaimError,
    RequeueFailed,
    RestoreFailed,
)
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.lifecycle import RUNNING_STATES, Fact, State
from slurm_reclaim.model.session import Session


@dataclass(frozen=True)
class Ended:
    """`error` is None where it ended as asked."""

    error: ReclaimError | None = None


# What a session that runs again after it should have been hibernated says of the reason.
_BACK = {
    Fact.PREFLIGHT_REFUSED: NotReclaimable,
    Fact.DUMP_FAILED: DumpFailed,
    Fact.ACTIVITY_SEEN: CancelledByActivity,
    Fact.RESTORE_SUCCEEDED: RequeueFailed,
    Fact.REQUEUE_REFUSED: RequeueFailed,
}


def of_hibernation(asked: Session, now: Session, events: Sequence[Event]) -> Ended | None:
    """None while it goes on. `asked` is the session as the request was answered, `events` what
    happened since, oldest first."""
    if now.state is State.HIBERNATED:
        return Ended()
    if now.state is State.ENDED:
        return Ended(OperationFailed(f"job {now.job} ended: {now.reason}"))
    if now.state is State.FAILED:
        return Ended(RestoreFailed(now.reason, hint="the checkpoint is kept; tell an admin"))
    if now.state is State.QUEUED:
        # Released between two looks, or its node died before there was a checkpoint.
        made = now.checkpoint not in (-1, asked.checkpoint)
        return Ended(None if made else OperationFailed(f"job {now.job}: {now.reason}"))
    if now.state not in RUNNING_STATES or not _moved(asked, now):
        return None
    event = _newest(events, _BACK)
    error = _BACK[Fact(event.kind)] if event else DumpFailed
    reason = (event.reason if event else "") or now.reason
    hint = _advice(event) if event else ""
    return Ended(error(f"job {now.job} was not hibernated and runs on: {reason}", hint=hint))


def of_restore(asked: Session, now: Session) -> Ended | None:
    """None while it goes on."""
    if now.state in RUNNING_STATES:
        return Ended()
    if now.state is State.ENDED:
        return Ended(OperationFailed(f"job {now.job} ended: {now.reason}"))
    if now.state is State.FAILED:
        return Ended(RestoreFailed(now.reason, hint="the checkpoint is kept; tell an admin"))
    if now.state is State.HIBERNATED and _moved(asked, now):
        again = f"reclaim restore {now.job}"
        # A reason that offers it with --accept-changed would be overruled by the plain one.
        hint = "" if again in now.reason else f"try again: {again}"
        told = f"job {now.job} is hibernated again, its checkpoint is kept: {now.reason}"
        return Ended(RestoreFailed(told, hint=hint))
    return None


def _moved(asked: Session, now: Session) -> bool:
    """Whether a transition was seen since the request was answered. A request may be answered
    before the state has changed, so the state alone proves nothing."""
    return (asked.state, asked.since, asked.restarts) != (now.state, now.since, now.restarts)


def _newest(events: Sequence[Event], kinds: dict[Fact, type[ReclaimError]]) -> Event | None:
    wanted = {kind.value for kind in kinds}
    return next((event for event in reversed(events) if event.kind in wanted), None)


def _advice(event: Event) -> str:
    """A line for each blocker: what its owner can do. The blockers themselves are in the reason."""
    names, hints = event.details.get("blockers"), event.details.get("hints")
    if not isinstance(names, list) or not isinstance(hints, list):
        return ""
    told = dict.fromkeys(zip(names, hints, strict=False))
    return "\n".join(f"{name}: {hint}" for name, hint in told if hint)
