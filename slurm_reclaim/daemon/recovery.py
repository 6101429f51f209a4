"""A controller started anew: sessions and intents from the journal, then a look at the world.

An intent without outcome is never simply repeated (S7). Orders go back on the book under their old
ids, and an agent that has carried one out answers from memory. Requeues and releases need nothing
here: the step of the session's state looks at Slurm first. A release that did not happen is left
to the owner to ask for again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

import msgspec

from slurm_reclaim.errors import BadRequest
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.evidence import Evidence
from slurm_reclaim.model.ids import SessionId, parse_session_id
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Order, Verb
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages import room
from slurm_reclaim.stages.desk import Desk

log = logging.getLogger(__name__)

FIRST_LOOK, MOST_HISTORY = 1000, 50_000  # events
HOUR = 3600.0  # seconds that limits.per_hour counts over

_STATE_OF = {Verb.HIBERNATE: State.HIBERNATING, Verb.RESTORE_IN_PLACE: State.RESTORING}
# Settled by the steps when the world shows the outcome.
_LEFT_TO_STEPS = {"requeue": State.REQUEUING, "restore": State.RESTORING}


def recover(desk: Desk) -> None:
    """Call once, before the first cycle."""
    desk.brake = desk.journal.recall(room.BRAKE)
    desk.history.take(_lately(desk))
    for session in desk.journal.sessions():
        desk.sessions[session.id] = session
        _see_that_it_was(desk, session)
    desk.evidence = _of_this_life(desk)
    for number, name, what, details in desk.journal.unsettled():
        outcome = _take_up(desk, number, name, what, details)
        if outcome:
            log.info("intent %d (%s) session=%s: %s", number, what, name, outcome)
            desk.journal.settle(number, outcome)


def _see_that_it_was(desk: Desk, session: Session) -> None:
    """Written by a clock that was put back since: what is seen from now on would pass for older
    than it, and nothing would go on until then."""
    now = desk.clock.now()
    since, started = min(session.since, now), min(session.started, now)
    if (since, started) != (session.since, session.started):
        ahead = max(session.since, session.started) - now
        log.warning("%.0f s ahead of the clock, which was put back session=%s", ahead, session.id)
        desk.update(session.id, since=since, started=started)


def _lately(desk: Desk) -> Sequence[Event]:
    """Events as far back as the limits and the brake look, with the hibernations that began before
    and ended since; read from the end, since a journal keeps months."""
    settings = desk.settings
    span = max(HOUR, settings.config.limits.brake_span) + settings.dump_timeout
    many, since = FIRST_LOOK, desk.clock.now() - span
    while True:
        events = desk.journal.events(limit=many)
        if len(events) < many or events[0].at < since or many >= MOST_HISTORY:
            return [event for event in events if event.at >= since]
        many *= 4


def _of_this_life(desk: Desk) -> dict[SessionId, Evidence]:
    """What was measured of sessions in the life they have now: before a restore says nothing."""
    found = {}
    for id, evidence in desk.journal.evidence().items():
        session = desk.sessions.get(id)
        if session is not None and session.started <= evidence.since:
            found[id] = evidence
    return found


def _take_up(desk: Desk, number: int, name: str, what: str, details: str) -> str:
    """How the intent ended; "" where it is still open."""
    try:
        session = desk.sessions.get(parse_session_id(name))
    except BadRequest:
        session = None
    if session is None:
        return "the session has ended"
    if what in _LEFT_TO_STEPS:
        return "" if session.state in (_LEFT_TO_STEPS[what], State.RESTORING) else "overtaken"
    if what in {verb.value for verb in _STATE_OF}:
        return _give_again(desk, number, session, details)
    return "not known; left to what Slurm shows"


def _give_again(desk: Desk, number: int, session: Session, details: str) -> str:
    try:
        stored = json.loads(details)
        order = msgspec.convert(stored["order"], Order)
    except (ValueError, KeyError, TypeError, msgspec.ValidationError):
        return "the order can't be read"
    if session.state is not _STATE_OF.get(order.verb) or session.restarts != order.restarts:
        return "never ordered, or overtaken"
    desk.orders.give(str(stored["node"]), number, order)
    return ""
