"""What agents answer to orders. They repeat an answer until it is acknowledged, so the same one,
and one to an order long overtaken, must change nothing the second time."""

from __future__ import annotations

import logging
from collections.abc import Callable

from slurm_reclaim.errors import BadRequest
from slurm_reclaim.model import blocker
from slurm_reclaim.model.ids import parse_session_id
from slurm_reclaim.model.lifecycle import Fact, State
from slurm_reclaim.model.order import STORE_VERBS, Outcome, Result, Verb
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages import shelf
from slurm_reclaim.stages.desk import Desk, Details
from slurm_reclaim.stages.hibernate import failed
from slurm_reclaim.stages.judge import cooled
from slurm_reclaim.stages.tell import take_terminals
from slurm_reclaim.stages.warn import take_preflight
from slurm_reclaim.stages.wording import committed_as

log = logging.getLogger(__name__)


def take_result(desk: Desk, node: str, result: Result) -> None:
    if result.verb in STORE_VERBS:
        shelf.take(desk, result)
        return
    try:
        session = desk.sessions.get(parse_session_id(result.session))
    except BadRequest:
        session = None
    if session is None or session.restarts != result.restarts:
        log.info("stale answer to order %s from %s session=%s", result.order, node, result.session)
    elif session.node != node:
        log.warning(
            "%s answers order %s of a session on %s; left aside session=%s",
            node, result.order, session.node or "no node", session.id,
        )  # fmt: skip
        return
    elif result.verb is Verb.PREFLIGHT and not desk.orders.knows(result.order):
        # It hung, and was given up: it says nothing of the session as it is now.
        log.info("late answer to order %s from %s session=%s", result.order, node, session.id)
    elif result.verb is Verb.NOTIFY:
        take_terminals(desk, session, result)
    elif (take := _TAKERS.get((session.state, result.verb))) is not None:
        take(desk, session, result)
    # Last: an order is off the book only once what it led to is in the journal.
    intent = desk.orders.take_back(result.order)
    if intent is not None:
        desk.journal.settle(intent, f"{result.outcome.value}: {result.reason}")


def _hibernated(desk: Desk, session: Session, result: Result) -> None:
    details: Details = {
        "seconds": round(result.seconds, 3),
        "bytes": result.bytes,
        "stored": result.stored,
    }
    if result.outcome is Outcome.DONE:
        freed = _freed_gpu(result)
        if freed:
            details["freed_gpu"] = freed
        desk.apply(
            session.id,
            Fact.CHECKPOINT_COMMITTED,
            committed_as(result.bytes, result.reason, result.seconds, result.stored, freed),
            details,
            checkpoint=result.restarts,
            saved_on=session.node,
            uploaded=-1,
            checkpoint_bytes=result.bytes,
            needs=result.needs or session.needs,
            freed_gpu=freed,
            unfit=None,
            bad_nodes=(),
            blockers=(),
        )
    elif result.outcome is Outcome.REFUSED:
        names = tuple(map(str, result.blockers))
        reason = result.reason or "; ".join(names)
        desk.apply(
            session.id,
            Fact.PREFLIGHT_REFUSED,
            reason,
            blocker.details(result.blockers),
            blockers=names,
            warned=failed(session),
            **cooled(desk, reason),
        )
    elif result.outcome is Outcome.CANCELLED:
        # Its agent saw a use that no sample may ever show: the clock begins anew.
        desk.evidence.pop(session.id, None)
        desk.apply(session.id, Fact.ACTIVITY_SEEN, result.reason, details)
    else:
        why = cooled(desk, "it could not be saved")
        change = {"warned": failed(session), **why}
        desk.apply(session.id, Fact.DUMP_FAILED, result.reason, details, **change)


def _freed_gpu(result: Result) -> int:
    """An agent that found the commit of one before it tells only what the checkpoint needs."""
    return result.freed_gpu or (result.needs.vram if result.needs is not None else 0)


def _restored_in_place(desk: Desk, session: Session, result: Result) -> None:
    if result.outcome is Outcome.DONE:
        reason = f"restored in place on {session.node}: {session.reason}"
        desk.apply(
            session.id,
            Fact.RESTORE_SUCCEEDED,
            reason,
            {"seconds": result.seconds},
            started=desk.clock.now(),
        )
    else:
        # Its agent reports it as not restored: it is held again, for another node (restoring.py).
        reason = f"could not be restored in place: {result.reason}"
        desk.note(session.id, "restore-in-place-failed", reason)


_TAKERS: dict[tuple[State, Verb], Callable[[Desk, Session, Result], None]] = {
    (State.IDLE, Verb.PREFLIGHT): take_preflight,
    (State.HIBERNATING, Verb.HIBERNATE): _hibernated,
    (State.RESTORING, Verb.RESTORE_IN_PLACE): _restored_in_place,
}
