"""Telling people: notices out by every channel, and what came back.

The channels of the controller run in a task of their own, so that a slow mail server keeps no
session waiting; the session's terminals are written to by its agent; Comment is Slurm's.
"""

from __future__ import annotations

import asyncio
import secrets

from slurm_reclaim.errors import RequeueFailed, Unavailable
from slurm_reclaim.model.notice import Channel, Delivery, Notice, NoticeKind
from slurm_reclaim.model.order import Order, Outcome, Result, Verb
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages.desk import Desk, Telling
from slurm_reclaim.stages.judge import terms_of, vram_held

# The agent's answer about the terminals is waited for this long beyond the channels' own time.
PATIENCE = 15.0  # seconds


def notice_of(desk: Desk, session: Session, kind: NoticeKind, reason: str, id: str) -> Notice:
    evidence = desk.evidence.get(session.id)
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
        vram=vram_held(desk, session),
        tres=session.tres,
    )


def send(desk: Desk, session: Session, notice: Notice, *, terminals: bool = True) -> None:
    """Start telling; answers gather in `desk.tellings[notice.id]`."""
    channels = desk.settings.config.notice.channels
    telling = desk.tellings.setdefault(notice.id, Telling())
    if desk.notifier is None:
        return
    if terminals and Channel.TERMINAL.value in channels:
        telling.waiting += 1
        _order_terminals(desk, session, notice)
    telling.waiting += 1
    telling.task = asyncio.get_running_loop().create_task(_deliver(desk, notice, telling))


def send_admins(desk: Desk, reason: str) -> None:
    """To the admins, of no session: by every channel of the controller."""
    if desk.notifier is None:
        return
    notice = Notice(secrets.token_hex(8), NoticeKind.BRAKE, desk.settings.cluster, reason=reason)
    telling = desk.tellings.setdefault(notice.id, Telling(waiting=1))
    telling.task = asyncio.get_running_loop().create_task(_deliver(desk, notice, telling))


async def _deliver(desk: Desk, notice: Notice, telling: Telling) -> None:
    assert desk.notifier is not None
    try:
        telling.deliveries += await desk.notifier.deliver(notice)
    finally:
        telling.waiting -= 1
        # Only of a warning is it asked later what became of it.
        if notice.kind is not NoticeKind.WARNING:
            desk.tellings.pop(notice.id, None)


def _order_terminals(desk: Desk, session: Session, notice: Notice) -> None:
    assert desk.notifier is not None
    order = Order(
        id=f"{notice.id}.{notice.kind.value}",
        verb=Verb.NOTIFY,
        session=str(session.id),
        job_id=session.id.job_id,
        restarts=session.restarts,
        reason=notice.kind.value,
        text=desk.notifier.text(notice),
    )
    intent = desk.journal.intend(session.id, order.verb.value, notice.id)
    desk.orders.give(session.node, intent, order)


def take_terminals(desk: Desk, session: Session, result: Result) -> None:
    """The agent's answer: how many terminals took the text."""
    telling = desk.tellings.get(result.order.partition(".")[0])
    if telling is None:
        return
    telling.waiting = max(0, telling.waiting - 1)
    taken = result.outcome is Outcome.DONE and result.count > 0
    telling.deliveries.append(
        Delivery(
            Channel.TERMINAL,
            ok=taken,
            to=f"{result.count} terminals" if taken else "",
            error="" if taken else result.reason or "no terminal took it",
            at=desk.clock.now(),
        )
    )


def answers(desk: Desk, id: str, asked: float) -> tuple[Delivery, ...] | None:
    """What became of a notice that was sent; None while answers are still to be waited for."""
    telling = desk.tellings[id]
    late = desk.clock.now() - asked > desk.settings.config.notice.timeout + PATIENCE
    if telling.waiting and not late:
        return None
    return tuple(telling.deliveries)


async def comment(desk: Desk, session: Session, text: str) -> Delivery:
    """Write Slurm's Comment."""
    now, error = desk.clock.now(), ""
    try:
        detail = await desk.scheduler.detail(session.id.job_id)
        if detail is None:
            error = "Slurm does not know the job"
        else:
            await desk.scheduler.annotate(
                session.id.job_id, comment=text, admin_comment=detail.admin_comment
            )
    except (Unavailable, RequeueFailed) as failed:
        error = failed.message
    return Delivery(Channel.COMMENT, ok=not error, to="squeue", error=error, at=now)


async def give_comment_back(desk: Desk, session: Session, text: str) -> None:
    """Raises Unavailable where Slurm does not answer; a refusal is the end of it."""
    detail = await desk.scheduler.detail(session.id.job_id)
    if detail is None:
        return
    try:
        await desk.scheduler.annotate(
            session.id.job_id, comment=text, admin_comment=detail.admin_comment
        )
    except RequeueFailed as error:
        desk.note(session.id, "comment-refused", error.message)
