"""ACTIVE, IDLE, WARNED: the tree is the session. Also FAILED, which only its job's end ends."""

from __future__ import annotations

from dataclasses import replace

from slurm_reclaim.model.job import Job
from slurm_reclaim.model.lifecycle import Fact, State
from slurm_reclaim.model.order import Living
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages import idle, rebooted, tell, warn
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.ending import (
    brought_up,
    end,
    forgotten,
    gone,
    incarnation_lost,
    row,
)
from slurm_reclaim.stages.hibernate import committed
from slurm_reclaim.stages.hold import keep


async def step(desk: Desk, session: Session) -> None:
    job = row(desk, session)
    if job is None:
        if why := await gone(desk, session):
            end(desk, session, why)
        return
    if job.restarts > session.restarts:
        incarnation_lost(desk, session, job)
        current = desk.sessions.get(session.id)
        if current is not None and job.waiting:
            # At once: after a node failure Slurm may start the job again within seconds.
            await keep(desk, current, job)
        return
    if job.finished:
        end(desk, session, f"the job ended: {job.state}")
        return
    if job.waiting and forgotten(desk, session):
        await _back_to_the_image(desk, session, job)
        return
    if not job.running:
        return
    session = brought_up(desk, session, job)
    if await rebooted.step(desk, session):
        return
    found = desk.view.report_of(session)
    if found is not None and found[1].at > session.since:
        told = found[2]
        if told.living is Living.COMMITTED and told.checkpoint == session.restarts:
            committed(desk, session, told)
            return
    await _give_back(desk, session)
    session = desk.sessions[session.id]
    if session.state is State.ACTIVE:
        await warn.clear_up(desk, session)
        idle.step(desk, desk.sessions[session.id])
    elif session.state is State.IDLE:
        await warn.idle(desk, session)
    elif session.state is State.WARNED:
        await warn.warned(desk, session)


async def _back_to_the_image(desk: Desk, session: Session, job: Job) -> None:
    if session.checkpoint < 0:
        end(desk, session, "Slurm went back to before the job started, and there is no checkpoint")
        return
    reason = "Slurm went back to before the restore; the session goes back to its last checkpoint"
    desk.drop_orders(session.id, "the incarnation was lost")
    desk.kept.pop(session.id, None)  # what the held job was given is forgotten, too
    desk.apply(session.id, Fact.NODE_LOST, reason, restarts=job.restarts)


async def failed(desk: Desk, session: Session) -> None:
    job = row(desk, session)
    if job is not None and job.finished:
        end(desk, session, f"the job ended: {job.state}; its checkpoint is left to retention")
    elif job is None and (why := await gone(desk, session)):
        end(desk, session, f"{why}; its checkpoint is left to retention")


async def _give_back(desk: Desk, session: Session) -> None:
    """After a restore: Comment as its owner had it, and our part of AdminComment gone."""
    saved = session.saved
    if saved is None or saved.returned:
        return
    await tell.give_back(desk, session, saved.comment, "")
    desk.update(session.id, saved=replace(saved, returned=True))
