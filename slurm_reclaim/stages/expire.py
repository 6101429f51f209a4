"""expire: now and then the store is looked through. What nobody needs goes, owners of sessions that
sleep for very long are told before these end, and all the rest is kept (policy/retention.py).

By itself it deletes only in mode prod, and only while Slurm answers and the clocks agree. Each
thing is looked at once more right before it is done; what did not work is found again by the next
look.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable
from dataclasses import replace

from slurm_reclaim.errors import (
    AgentUnavailable,
    ReclaimError,
    Refused,
    RequeueFailed,
    StoreUnavailable,
)
from slurm_reclaim.model.catalogue import Announced, StoreAnswer, StoreTask
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.ids import SessionId, parse_session_id
from slurm_reclaim.model.lifecycle import RUNNING_STATES, Fact, State
from slurm_reclaim.model.notice import Channel, Delivery, NoticeKind
from slurm_reclaim.model.order import Verb
from slurm_reclaim.model.retention import Expiry, Notify, Plan
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.words import amount, clock
from slurm_reclaim.stages import shelf, standing, tell
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.view import same_job
from slurm_reclaim.stages.wording import hibernated

log = logging.getLogger(__name__)

# Deletions in one pass: the next one takes up the rest, with a fresh look at everything.
MOST = 500
# An owner who could not be told is told again after this share of retention.notice: not at every
# pass, since a channel that does not count may have delivered it.
AGAIN = 1 / 14


async def cycle(desk: Desk) -> Plan | None:
    """One pass; what it went by, None where nothing could be told. Raises Unavailable."""
    await shelf.refresh(desk)
    if why := standing.doubt(desk):
        log.warning("nothing is expired: %s", why)
        return None
    _alarm(desk)
    for name in desk.shelf.told.keys() - desk.shelf.sessions.keys():
        del desk.shelf.told[name]
    plan = await standing.planned(desk)
    if desk.settings.config.mode != "prod":
        return plan
    for notify in plan.notify:
        await _safely(notify.session, _notify(desk, notify))
    for name in plan.retire:
        await _safely(name, _retire(desk, name))
    for expiry in plan.expiries[:MOST]:
        await _safely(expiry.session, expire(desk, expiry))
    if plan.expiries:
        # Quotas go by what is there now.
        await shelf.refresh(desk)
    return plan


async def _safely(name: str, work: Awaitable[object]) -> None:
    """One session's trouble is that session's alone; a store that can't be reached is everyone's.
    Raises AgentUnavailable, StoreUnavailable."""
    try:
        await work
    except (AgentUnavailable, StoreUnavailable):
        raise
    except ReclaimError as error:
        log.warning("retention session=%s: %s", name, error.message)


def _alarm(desk: Desk) -> None:
    """Sessions that sleep and whose image is not there, or can't be read: said at once, and not
    when their owner comes back."""
    looked = desk.shelf.at
    for session in list(desk.sessions.values()):
        if session.state is not State.HIBERNATED or session.checkpoint < 0:
            continue
        if session.since >= looked:
            continue  # younger than what was seen
        stored = desk.shelf.sessions.get(str(session.id))
        found = (
            [c for c in stored.checkpoints if c.restarts == session.checkpoint] if stored else []
        )
        if not found:
            reason = f"checkpoint {session.checkpoint} is not in the store"
            desk.note(session.id, "checkpoint-missing", reason)
        elif found[0].problem:
            desk.note(session.id, "checkpoint-unreadable", found[0].problem)


# -- deleting ------------------------------------------------------------------------------------


async def expire(desk: Desk, expiry: Expiry) -> StoreAnswer:
    """Have it deleted. Raises Refused where it may not be any more, OperationFailed, Unavailable;
    nothing that is needed is deleted then."""
    id = parse_session_id(expiry.session)
    await _see_that_it_may(desk, id, expiry)
    task = StoreTask(expiry.session, expiry.restarts, ended=expiry.ended)
    result = await shelf.ask(desk, Verb.EXPIRE, task, expiry.reason)
    answer = result.store or StoreAnswer()
    if expiry.restarts or answer.freed:
        _note(desk, id, expiry, answer)
    desk.shelf.at = 0.0  # it is not as it was seen
    return answer


async def _see_that_it_may(desk: Desk, id: SessionId, expiry: Expiry) -> None:
    """S6, right before the order. Raises Refused, Unavailable."""
    pinned = {pin.restarts for pin in desk.journal.pins() if pin.session == expiry.session}
    if both := pinned & set(expiry.restarts):
        raise Refused(f"checkpoint {min(both)} of {id} is pinned")
    session = desk.sessions.get(id)
    if session is None:
        if not expiry.ended:
            raise Refused(f"{id} has ended meanwhile")
        detail = await desk.scheduler.detail(id.job_id)
        if detail is not None and same_job(id, 0, detail.job):
            raise Refused(f"Slurm still shows the job of {id}, {detail.job.state}")
        if desk.sessions.get(id) is not None:
            raise Refused(f"{id} has been found again")
    elif expiry.ended or not _at_rest(session) or session.checkpoint in expiry.restarts:
        raise Refused(f"{id} is {session.state}")


def _at_rest(session: Session) -> bool:
    return session.state in RUNNING_STATES or session.state is State.HIBERNATED


def _note(desk: Desk, id: SessionId, expiry: Expiry, answer: StoreAnswer) -> None:
    which = ", ".join(map(str, expiry.restarts))
    what = f"checkpoint {which} deleted" if which else "remains deleted"
    event = Event(
        at=desk.clock.now(),
        kind="checkpoint-expired",
        reason=f"{what}, {amount(answer.freed)} freed: {expiry.reason}",
        session=str(id),
        job_id=id.job_id,
        uid=id.uid,
        node=desk.shelf.node,
        details={"bytes": answer.freed, "restarts": [str(n) for n in expiry.restarts]},
    )
    desk.journal.note(event)
    log.info("%s session=%s", event.reason, id)


# -- sessions that sleep for very long -----------------------------------------------------------


async def _notify(desk: Desk, notify: Notify) -> None:
    """Only a delivery that is confirmed counts; without one the session is kept, and it is tried
    again some time later."""
    id, now = parse_session_id(notify.session), desk.clock.now()
    session = desk.sessions.get(id)
    pause = desk.settings.config.retention.notice * AGAIN
    if now - desk.shelf.told.get(notify.session, 0.0) < pause:
        return
    desk.shelf.told[notify.session] = now
    if session is None or session.state is not State.HIBERNATED or desk.notifier is None:
        return
    since = session.since
    reason = f"it has been hibernated since {clock(since)}"
    notice = tell.notice_of(desk, session, NoticeKind.EXPIRY, reason, secrets.token_hex(8))
    deliveries = list(await desk.notifier.deliver(replace(notice, deadline=notify.deadline)))
    config = desk.settings.config.notice
    if Channel.COMMENT.value in config.channels:
        text = f"{hibernated(session, since)}; ends {clock(notify.deadline)}"
        deliveries.append(await tell.comment(desk, session, text))
    _remember(desk, id, since, notify, deliveries)


def _remember(
    desk: Desk, id: SessionId, since: float, notify: Notify, deliveries: list[Delivery]
) -> None:
    session = desk.sessions.get(id)
    if session is None or session.since != since:
        return  # it was restored meanwhile
    told = tuple(str(each.channel) for each in deliveries if each.ok)
    said = desk.journal.announced().get(notify.session) if notify.times > 1 else None
    if said is not None:
        desk.journal.announce(replace(said, times=notify.times))
    elif any(way in desk.settings.config.notice.enough for way in told):
        at = desk.clock.now()
        deadline = max(notify.deadline, at + desk.settings.config.retention.notice)
        desk.journal.announce(Announced(str(id), since, deadline, at, notify.times, told))
    else:
        why = "; ".join(f"{each.channel}: {each.error}" for each in deliveries if not each.ok)
        desk.note(id, "expiry-not-told", f"nobody could be told, so it is kept: {why or 'no way'}")
        return
    by = ", ".join(told) or "nobody"
    desk.note(id, "expiry-told", f"told by {by}: it ends {clock(notify.deadline)}")


async def _retire(desk: Desk, name: str) -> None:
    """The deadline has passed. The job is held such that its owner can't release it in the last
    moment, then cancelled; its image stays for as long as those of all ended sessions."""
    id = parse_session_id(name)
    async with desk.lock(id):
        session, said = desk.sessions.get(id), desk.journal.announced().get(name)
        if session is None or said is None or not await _asleep(desk, id, said.since):
            return
        intent = desk.journal.intend(id, "retire", str(round(said.deadline)))
        try:
            await desk.scheduler.hold(session.job)
            if not await _asleep(desk, id, said.since):
                desk.journal.settle(intent, "it was released meanwhile")
                return
            await desk.scheduler.cancel(session.job)
        except RequeueFailed as error:
            desk.journal.settle(intent, f"refused: {error.message}")
            desk.note(id, "expiry-refused", error.message)
            return
        finally:
            desk.touch(id)
        slept = f"hibernated since {clock(session.since)}, its owner was told {clock(said.at)}"
        desk.apply(id, Fact.RETENTION_EXPIRED, f"{slept}; the job was cancelled")
        desk.journal.settle(intent, "done")


async def _asleep(desk: Desk, id: SessionId, since: float) -> bool:
    """Whether it is still hibernated as it was, and Slurm holds its job. Raises Unavailable."""
    detail = await desk.scheduler.detail(id.job_id)
    session = desk.sessions.get(id)
    if session is None or session.state is not State.HIBERNATED or session.since != since:
        return False
    if detail is None or not same_job(id, session.restarts, detail.job):
        return False
    return detail.job.waiting and detail.job.held
