"""IDLE and WARNED: from the confirmed idleness over the warning to the hibernation.

IDLE: see that it can be hibernated at all, then tell its owner. WARNED: wait for the deadline; any
use, and whatever makes the idleness unsure, takes the warning back.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

from slurm_reclaim.errors import AgentUnavailable, Refused
from slurm_reclaim.model import blocker
from slurm_reclaim.model.lifecycle import Fact
from slurm_reclaim.model.notice import Channel, NoticeKind
from slurm_reclaim.model.order import Outcome, Result, Verb
from slurm_reclaim.model.session import Session, Warned
from slurm_reclaim.model.words import clock, span
from slurm_reclaim.policy.decision import Decision, Standing, doubt
from slurm_reclaim.policy.idleness import idle_span
from slurm_reclaim.policy.terms import Terms
from slurm_reclaim.stages import room, tell
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.hibernate import hibernate_idle, see_that_it_can
from slurm_reclaim.stages.judge import cooled, guard_of, judge
from slurm_reclaim.stages.orders import order_for
from slurm_reclaim.stages.wording import to_be_hibernated

NOT_TOLD = "nobody could be told"
LONGEST_LOOK = 180.0  # seconds for a preflight


async def idle(desk: Desk, session: Session) -> None:
    """IDLE: preflight, then the notices; with one confirmed delivery it is WARNED."""
    warned = session.warned
    decision, terms = judge(desk, session)
    if warned is None or await _taken_back(desk, session, decision, terms):
        return
    if not warned.cleared:
        await _preflight(desk, session)
    elif not warned.asked or warned.id not in desk.tellings:
        # Also where a controller that is no more had asked: its answers are lost.
        await _tell(desk, session, terms, decision)
    else:
        _conclude(desk, session, warned, decision)


async def warned(desk: Desk, session: Session) -> None:
    """WARNED: until the deadline, and then."""
    if await _due(desk, session) is None:
        return
    try:
        await see_that_it_can(desk, session)
        # Slurm took its time: a use or the brake may have come meanwhile (S5).
        session = desk.sessions[session.id]
        if (due := await _due(desk, session)) is not None:
            hibernate_idle(desk, session, *due)
    except AgentUnavailable as error:
        desk.note(session.id, "waits-for-agent", error.message)
    except Refused as refusal:
        reason = refusal.message
        await back(desk, session, Fact.PREFLIGHT_REFUSED, reason, **cooled(desk, reason))


async def _due(desk: Desk, session: Session) -> tuple[str, float] | None:
    """Why it is to be hibernated now, and until when it is known to be idle (Unix seconds); None
    where it is not. Nothing was awaited where it is."""
    warning = session.warned
    decision, terms = judge(desk, session)
    if warning is None or await _taken_back(desk, session, decision, terms):
        return None
    now = desk.clock.now()
    evidence = desk.evidence.get(session.id)
    if decision.standing is not Standing.IDLE or now < warning.deadline or evidence is None:
        return None
    if evidence.until < warning.deadline:
        return None  # idle until the deadline must be known, not until shortly before (S4)
    if desk.view.started > warning.deadline:
        # Nobody was there at the deadline: what it said is stale, and its owner is told anew.
        await back(desk, session, Fact.WITHDRAWN, "the controller was away at the deadline")
        return None
    if why := room.full(desk, session):
        desk.note(session.id, "waits-for-room", why)
        return None
    return decision.reason, evidence.until


async def back(desk: Desk, session: Session, fact: Fact, reason: str, **change: Any) -> Session:
    """To ACTIVE; what was said about a hibernation is withdrawn."""
    after = desk.apply(session.id, fact, reason, **change)
    desk.drop_orders(session.id, reason)
    await clear_up(desk, after)
    return desk.sessions[session.id]


async def clear_up(desk: Desk, session: Session) -> None:
    """ACTIVE with a warning left over: give Slurm's Comment back and tell whoever was told that
    the warning is void. Tried again while Slurm does not answer; raises Unavailable then."""
    warning = session.warned
    if warning is None:
        return
    desk.tellings.pop(warning.id, None)
    if warning.commented:
        await tell.give_back(desk, session, warning.comment)
    session = desk.update(session.id, warned=None)
    told = {delivery.channel for delivery in warning.deliveries if delivery.ok}
    if told - {Channel.COMMENT}:
        notice = tell.notice_of(
            desk,
            session,
            NoticeKind.NOT_HIBERNATED if warning.failed else NoticeKind.WITHDRAWN,
            session.reason,
            secrets.token_hex(8),
        )
        tell.send(desk, session, notice)


async def _taken_back(desk: Desk, session: Session, decision: Decision, terms: Terms) -> bool:
    """Whether the session went back to ACTIVE: it was used, the clock was set back, or something
    now stands in the way. What is unknown for a moment only makes it wait."""
    warning = session.warned
    since = warning.since if warning is not None else session.since
    due = max(warning.deadline, since) if warning is not None else since
    gap, now = desk.settings.config.idle.gap, desk.clock.now()
    found = doubt(desk.evidence.get(session.id), decision, since, due, gap, now)
    if found is not None:
        fact = Fact.ACTIVITY_SEEN if found.used else Fact.WITHDRAWN
        await back(desk, session, fact, found.reason)
        return True
    if terms.mode != "prod" or terms.action != "hibernate":
        why = f"its terms have changed (mode {terms.mode}, action {terms.action})"
        await back(desk, session, Fact.WITHDRAWN, why)
        return True
    guard = guard_of(desk, session, terms)
    if guard is not None:
        await back(desk, session, Fact.WITHDRAWN, f"{guard.name}: {guard.reason}")
        return True
    return False


async def _preflight(desk: Desk, session: Session) -> None:
    """Slurm must be able to requeue it, and its agent sees what CRIU can't dump."""
    if desk.orders.of_session(str(session.id)) is not None:
        await _not_for_ever(desk, session)
        return
    try:
        await see_that_it_can(desk, session)
    except AgentUnavailable as error:
        desk.note(session.id, "waits-for-agent", error.message)
        return
    except Refused as refusal:
        reason = refusal.message
        await back(desk, session, Fact.PREFLIGHT_REFUSED, reason, **cooled(desk, reason))
        return
    session = desk.sessions[session.id]
    if session.warned is not None:
        looked = replace(session.warned, looked=desk.clock.now())
        session = desk.update(session.id, warned=looked)
    desk.give(session, order_for(session, Verb.PREFLIGHT, "before a warning"))


async def _not_for_ever(desk: Desk, session: Session) -> None:
    """Something of the session may keep whoever looks at it (a dead file server): then it could
    hardly be dumped."""
    warned, now = session.warned, desk.clock.now()
    since = max(warned.since, warned.looked) if warned is not None else now
    heard = desk.view.fresh(session.node, now, desk.settings.silent_after)
    if now - since < LONGEST_LOOK or heard is None:
        return  # of a silent agent nothing else can be known: see decision.py
    reason = f"its agent could not look at all of it within {span(LONGEST_LOOK)}"
    await back(desk, session, Fact.PREFLIGHT_REFUSED, reason, **cooled(desk, reason))


def take_preflight(desk: Desk, session: Session, result: Result) -> None:
    """The agent's answer to the dry run."""
    if session.warned is None:
        return
    if result.outcome is Outcome.DONE and not result.blockers:
        cleared = replace(session.warned, cleared=desk.clock.now())
        desk.update(session.id, warned=cleared, blockers=())
        return
    names = tuple(map(str, result.blockers))
    reason = "; ".join(names) or result.reason or "its agent could not look"
    desk.apply(
        session.id,
        Fact.PREFLIGHT_REFUSED,
        f"can't be hibernated: {reason}",
        blocker.details(result.blockers),
        warned=None,
        blockers=names,
        **cooled(desk, reason),
    )
    _tell_blocked(desk, desk.sessions[session.id], reason)


def _tell_blocked(desk: Desk, session: Session, reason: str) -> None:
    """Once for each span of idleness; the preflight is done again after each cool-down."""
    evidence = desk.evidence.get(session.id)
    if evidence is None or session.shadowed >= idle_span(evidence):
        return
    session = desk.update(session.id, shadowed=idle_span(evidence))
    id = secrets.token_hex(8)
    tell.send(desk, session, tell.notice_of(desk, session, NoticeKind.BLOCKED, reason, id))


async def _tell(desk: Desk, session: Session, terms: Terms, decision: Decision) -> None:
    """Every channel at once. What stands in Comment is journaled before ours goes there (S7)."""
    before = session.warned
    assert before is not None
    channels = _channels(desk, session)
    commenting = Channel.COMMENT.value in channels
    detail = await desk.scheduler.detail(session.id.job_id) if commenting else None
    now = desk.clock.now()
    asked = replace(before, asked=now, deadline=now + terms.grace)
    if detail is not None and not before.commented:
        asked = replace(asked, comment=detail.comment, commented=True)
    session = desk.update(session.id, warned=asked)
    warning = tell.notice_of(desk, session, NoticeKind.WARNING, decision.reason, asked.id)
    tell.send(desk, session, warning, only=channels)
    if detail is not None:
        done = await tell.comment(desk, session, to_be_hibernated(asked.deadline, session.job))
        current = desk.sessions[session.id].warned
        if current is not None and current.id == asked.id:
            told = replace(current, deliveries=(*current.deliveries, done))
            desk.update(session.id, warned=told)


def _channels(desk: Desk, session: Session) -> list[str]:
    """All that are configured; but where nobody could be told in this span of idleness already,
    those that count. The others have delivered what was void a moment later: not again."""
    notice, evidence = desk.settings.config.notice, desk.evidence.get(session.id)
    failed = session.cooldown_until - desk.settings.config.idle.cooldown
    if (
        session.cooldown_reason != NOT_TOLD
        or evidence is None
        or idle_span(evidence) > failed
        or not set(notice.channels).intersection(notice.enough)
    ):
        return notice.channels
    return [name for name in notice.channels if name in notice.enough]


def _conclude(desk: Desk, session: Session, warned: Warned, decision: Decision) -> None:
    """Once every channel has answered: WARNED where one delivery is confirmed, else nothing."""
    answers = tell.answers(desk, warned.id, warned.asked)
    if answers is None:
        return
    desk.tellings.pop(warned.id, None)
    every = (*warned.deliveries, *answers)
    enough = desk.settings.config.notice.enough
    told, failed = tell.outcome(every)
    details: dict[str, str | int | float | list[str]] = {"told": told, "failed": failed}
    warned = replace(warned, deliveries=every)
    in_time = desk.clock.now() < warned.deadline
    if in_time and any(name in enough for name in told):
        reason = f"warned by {', '.join(told)}; will be hibernated {clock(warned.deadline)}"
        desk.apply(
            session.id,
            Fact.NOTICE_DELIVERED,
            f"{reason} unless used; {decision.reason}",
            {**details, "deadline": round(warned.deadline)},
            warned=warned,
        )
        return
    if not in_time:
        failed.append("what was delivered came after the deadline")
    why = "; ".join(failed) or f"no channel of notice.enough ({', '.join(enough)}) is in use"
    reason = f"{NOT_TOLD}, so nothing is hibernated: {why}"
    desk.update(session.id, warned=warned)
    desk.apply(session.id, Fact.WITHDRAWN, reason, details, **cooled(desk, NOT_TOLD))
