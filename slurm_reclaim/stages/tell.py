"""Telling people: notices out by every channel, and what came back.

The channels of the controller run in a task of their own, so that a slow mail server keeps no
session waiting; the session's terminals are written to by its agent; Comment is Slurm's.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Sequence

from slurm_reclaim.errors import RequeueFailed, Unavailable
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.lifecycle import IMAGE_STATES
from slurm_reclaim.model.notice import Channel, Delivery, Notice, NoticeKind
from slurm_reclaim.model.order import Outcome, Result, Verb
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages.desk import Desk, Details, Telling, Told
from slurm_reclaim.stages.judge import terms_of, vram_held
from slurm_reclaim.stages.orders import order_for
from slurm_reclaim.stages.wording import is_ours, merged

# The agent's answer about the terminals is waited for this long beyond the channels' own time.
PATIENCE = 15.0  # seconds


def notice_of(desk: Desk, session: Session, kind: NoticeKind, reason: str, id: str) -> Notice:
    evidence = desk.evidence.get(session.id)
    asleep = session.state in IMAGE_STATES
    return Notice(
        id=id,
        kind=kind,
        cluster=session.id.cluster,
        job=session.job,
        job_id=session.id.job_id,
        job_name=session.name,
        user=session.user,
        uid=session.id.uid,
        node=session.node,
        partition=session.partition,
        account=session.account,
        rule=terms_of(desk, session).rule,
        reason=reason,
        deadline=session.warned.deadline if session.warned is not None else 0.0,
        idle=evidence.quiet if evidence is not None else 0.0,
        vram=session.freed_gpu if asleep else vram_held(desk, session),
        tres=session.tres,
    )


def send(
    desk: Desk,
    session: Session,
    notice: Notice,
    *,
    terminals: bool = True,
    only: Collection[str] = (),
) -> None:
    """Start telling; answers gather in `desk.tellings[notice.id]`. `only`: by no other channels,
    where it names some."""
    channels = only or desk.settings.config.notice.channels
    if desk.notifier is None and notice.kind is not NoticeKind.WARNING:
        return  # nobody will ask what became of it
    telling = desk.tellings.setdefault(notice.id, Telling())
    if desk.notifier is None:
        return
    if terminals and Channel.TERMINAL.value in channels:
        telling.waiting += 1
        _order_terminals(desk, session, notice)
    telling.waiting += 1
    telling.task = asyncio.get_running_loop().create_task(
        _deliver(desk, notice, telling, session.id, only)
    )


def send_admins(desk: Desk, reason: str, kind: NoticeKind = NoticeKind.BRAKE) -> None:
    """To the admins, of no session: by every channel of the controller."""
    if desk.notifier is None:
        return
    notice = Notice(secrets.token_hex(8), kind, desk.settings.cluster, reason=reason)
    telling = desk.tellings.setdefault(notice.id, Telling(waiting=1))
    telling.task = asyncio.get_running_loop().create_task(_deliver(desk, notice, telling))


async def _deliver(
    desk: Desk,
    notice: Notice,
    telling: Telling,
    of: SessionId | None = None,
    only: Collection[str] = (),
) -> None:
    assert desk.notifier is not None
    found: Sequence[Delivery] = ()
    try:
        found = await desk.notifier.deliver(notice, only)
        telling.deliveries += found
    finally:
        telling.waiting -= 1
        # Only of a warning is it asked later what became of it.
        if notice.kind is not NoticeKind.WARNING:
            desk.tellings.pop(notice.id, None)
            if found:
                desk.told.append(Told(of, notice.kind.value, notice.id, tuple(found)))


def record(desk: Desk) -> None:
    """What became of notices, into the journal. Raises StoreUnavailable: they wait for the next
    time then."""
    while desk.told:
        _record(desk, desk.told[0])
        del desk.told[0]


def _record(desk: Desk, one: Told) -> None:
    told, failed = outcome(one.deliveries)
    said = [f"told by {', '.join(told)}"] if told else []
    said += [f"not told by {'; '.join(failed)}"] if failed else []
    reason = f"{one.kind}: {'; '.join(said)}"
    if one.of is None:
        desk.note_all("notice", reason)
    elif one.of in desk.sessions:
        details: Details = {"notice": one.kind, "told": told, "failed": failed}
        about = f"{one.notice} {one.deliveries[0].channel}"
        desk.note(one.of, "notice", reason, details, about=about)


def outcome(deliveries: Sequence[Delivery]) -> tuple[list[str], list[str]]:
    """The channels that delivered, and what the others said."""
    told = [str(each.channel) for each in deliveries if each.ok]
    failed = [f"{d.channel}: {d.error or 'not confirmed'}" for d in deliveries if not d.ok]
    return told, failed


def _order_terminals(desk: Desk, session: Session, notice: Notice) -> None:
    assert desk.notifier is not None
    id, kind = f"{notice.id}.{notice.kind.value}", notice.kind.value
    text = desk.notifier.text(notice)
    desk.give(session, order_for(session, Verb.NOTIFY, kind, id=id, text=text))


def take_terminals(desk: Desk, session: Session, result: Result) -> None:
    """The agent's answer: how many terminals took the text."""
    id, _, kind = result.order.partition(".")
    taken = result.outcome is Outcome.DONE and result.count > 0
    found = Delivery(
        Channel.TERMINAL,
        ok=taken,
        to=f"{result.count} terminals" if taken else "",
        error="" if taken else result.reason or "no terminal took it",
        at=desk.clock.now(),
    )
    telling = desk.tellings.get(id)
    if telling is not None:
        telling.waiting = max(0, telling.waiting - 1)
        telling.deliveries.append(found)
    if kind != NoticeKind.WARNING.value:
        desk.told.append(Told(session.id, kind, id, (found,)))


def answers(desk: Desk, id: str, asked: float) -> tuple[Delivery, ...] | None:
    """What became of a notice that was sent; None while answers are still to be waited for."""
    telling = desk.tellings[id]
    if telling.task is not None and not telling.task.done():
        return None  # it waits for its turn, or for an answer, which has its time
    late = desk.clock.now() - asked > desk.settings.config.notice.timeout + PATIENCE
    if telling.waiting and not late:
        return None
    return tuple(telling.deliveries)


async def comment(desk: Desk, session: Session, text: str) -> Delivery:
    """Write Slurm's Comment."""
    error = ""
    try:
        if not await _annotate(desk, session, text, None):
            error = "Slurm does not know the job"
    except (Unavailable, RequeueFailed) as failed:
        error = failed.message
    return Delivery(Channel.COMMENT, ok=not error, to="squeue", error=error, at=desk.clock.now())


async def annotate(desk: Desk, session: Session, text: str, ours: str | None = None) -> None:
    """`text` into Comment and `ours` as our part of AdminComment, which is left as it is without.
    A courtesy: a refusal stops nothing. Raises Unavailable."""
    try:
        await _annotate(desk, session, text, ours)
    except RequeueFailed as error:
        desk.note(session.id, "comment-refused", error.message)


async def give_back(desk: Desk, session: Session, text: str, ours: str | None = None) -> None:
    """As `annotate`, but a Comment that somebody has written over ours stays."""
    try:
        await _annotate(desk, session, text, ours, over_others=False)
    except RequeueFailed as error:
        desk.note(session.id, "comment-refused", error.message)


async def _annotate(
    desk: Desk, session: Session, text: str, ours: str | None, *, over_others: bool = True
) -> bool:
    """False where Slurm does not know the job. Raises Unavailable, RequeueFailed."""
    detail = await desk.scheduler.detail(session.id.job_id)
    if detail is None:
        return False
    if not over_others and not is_ours(detail.comment):
        text = detail.comment
    before = detail.admin_comment
    after = before if ours is None else merged(before, ours)
    await desk.scheduler.annotate(session.job, comment=text, admin_comment=after)
    return True
