"""What is known of the sessions in the store: ended, asleep, at work, or nothing (S6)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from slurm_reclaim.errors import BadRequest
from slurm_reclaim.model.catalogue import Announced, StoredSession
from slurm_reclaim.model.ids import SessionId, parse_session_id
from slurm_reclaim.model.lifecycle import RUNNING_STATES, State
from slurm_reclaim.model.retention import Known, Plan, Standing
from slurm_reclaim.model.session import Session
from slurm_reclaim.policy import quota, retention
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.view import same_job

# A clock that is further off than this makes ages worthless.
MOST_AHEAD = 600.0  # seconds
_AT_ONCE = 50  # sessions between two pauses, so that the controller's other work goes on


def doubt(desk: Desk) -> str:
    """Why nothing can be said about ages or ends now; "" where it can."""
    now, view, slurm = desk.clock.now(), desk.view, desk.settings.config.slurm
    if view.problem or now - view.asked > 3 * slurm.interval + slurm.timeout:
        return f"Slurm does not answer: {view.problem or 'not asked for too long'}"
    if now - view.started <= desk.settings.silent_after:
        return "agents that are well may not have reported yet"
    if abs(desk.shelf.ahead) > MOST_AHEAD:
        return f"the clock of {desk.shelf.node} is {desk.shelf.ahead:.0f} s ahead of this one"
    return ""


async def planned(desk: Desk) -> Plan:
    """What is to become of all that the last look into the store has found."""
    stored = list(desk.shelf.sessions.values())
    said = desk.journal.announced()
    known: dict[str, Known] = {}
    for number, each in enumerate(stored):
        known[each.session] = known_of(desk, each, said)
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
    pinned = {(pin.session, pin.restarts) for pin in desk.journal.pins()}
    rules = desk.settings.config.retention
    return await asyncio.to_thread(retention.plan, stored, known, pinned, rules, desk.clock.now())


def known_of(desk: Desk, stored: StoredSession, said: Mapping[str, Announced]) -> Known:
    user = next((each.user for each in reversed(stored.checkpoints) if each.user), "")
    try:
        id = parse_session_id(stored.session)
    except BadRequest:
        return Known(Standing.UNKNOWN, 0.0, -1, user, "its name can't be read")
    living = desk.sessions.get(id)
    session = living or desk.journal.session(id)
    if session is None:
        return Known(Standing.ORPHAN, 0.0, id.uid, user)
    standing, why = (_living(living), "") if living is not None else _ended(desk, session)
    return Known(
        standing,
        session.since,
        id.uid,
        session.user,
        why,
        session.checkpoint,
        said.get(stored.session),
    )


def _living(session: Session) -> Standing:
    if session.state is State.HIBERNATED:
        return Standing.HELD
    if session.state is State.FAILED:
        return Standing.FAILED
    return Standing.ALIVE if session.state in RUNNING_STATES else Standing.BUSY


def _ended(desk: Desk, session: Session) -> tuple[Standing, str]:
    """The journal says that it has ended. While Slurm can still start its job again, or an agent
    still shows it, that is not enough."""
    if why := doubt(desk):
        return Standing.UNKNOWN, why
    if why := slurm_shows(desk, session.id):
        return Standing.UNKNOWN, why
    if any(told.session == str(session.id) for _, _, told in desk.view.reports_of(session)):
        return Standing.UNKNOWN, "its session has ended, but an agent still shows it"
    return Standing.ENDED, ""


def slurm_shows(desk: Desk, id: SessionId) -> str:
    """Why Slurm may still start the session's job again; "" where its last answer does not show
    the job, or another one of that number."""
    job = desk.view.jobs.get(id.job_id)
    if job is None or not same_job(id, 0, job):
        return ""
    return f"Slurm still shows its job, {job.state}"


def over_quota(desk: Desk, session: Session, memory: int) -> str:
    """Why a session that holds `memory` bytes may not be hibernated; "" where it may."""
    rules = desk.settings.config.retention
    if not (rules.user_quota or rules.total_quota):
        return ""
    mine = total = 0
    for stored in desk.shelf.sessions.values():
        total += stored.bytes
        if parse_session_id(stored.session).uid == session.id.uid:
            mine += stored.bytes
    for each in desk.sessions.values():
        # Committed after the last look into the store.
        known = desk.shelf.sessions.get(str(each.id))
        there = () if known is None else known.there
        if each.checkpoint >= 0 and all(c.restarts < each.checkpoint for c in there):
            total += each.checkpoint_bytes
            mine += each.checkpoint_bytes if each.id.uid == session.id.uid else 0
    return quota.refusal(rules, mine, total, memory, session.user)
