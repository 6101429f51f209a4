"""requeue: the checkpoint is committed (S1), so the job gives its resources back and is held."""

from __future__ import annotations

import json
import math
import secrets

from slurm_reclaim.errors import ProgrammingError, RequeueFailed
from slurm_reclaim.model.job import Job, JobDetail
from slurm_reclaim.model.lifecycle import Fact, State
from slurm_reclaim.model.notice import NoticeKind
from slurm_reclaim.model.order import Verb
from slurm_reclaim.model.session import Saved, Session
from slurm_reclaim.model.words import clock
from slurm_reclaim.stages import tell
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.ending import count_on, detail_of, end, forgotten, gone, row
from slurm_reclaim.stages.hibernate import give_order
from slurm_reclaim.stages.orders import order_for
from slurm_reclaim.stages.view import same_job
from slurm_reclaim.stages.wording import freed_vram, hibernated, is_ours

# Endings after which a job with a committed image is still worth requeuing. Whoever cancelled it
# wanted it to end.
_CANCELLED = frozenset({"CANCELLED", "REVOKED", "DEADLINE"})


async def step(desk: Desk, session: Session) -> None:
    """REQUEUING: see it held, or ask for it (again)."""
    job = row(desk, session)
    if job is None:
        why = await gone(desk, session)
        if why:
            end(desk, session, f"{why}; its checkpoint is left to retention")
            return
        if desk.touched.get(session.id, 0.0) > session.since:
            return  # asked already; the next answer of Slurm will tell
    if job is not None and job.restarts > session.restarts:
        _observed(desk, session, job)
    elif job is not None and job.waiting and forgotten(desk, session):
        # It was never started, by what Slurm knows.
        _observed(desk, *count_on(desk, session, job))
    elif session.kept_until > desk.clock.now() and (job is None or job.running):
        _bring_back(desk, session, "its owner kept it while it was being saved")
    elif job is None or job.running or (job.finished and job.state not in _CANCELLED):
        await _requeue(desk, session)
    elif job.finished:
        end(desk, session, f"the job was ended by others: {job.state}")


def _observed(desk: Desk, session: Session, job: Job) -> None:
    """Requeued, by us or by Slurm itself when the node was lost: either way the image is all there
    is. Not held means that somebody was quick to release it, and hibernated.py sees to that."""
    if not (job.waiting or job.running):
        return  # still completing
    desk.settle(session.id, "requeue", "observed")
    how = "held" if job.held else "not held"
    freed = f"{freed_vram(session.freed_gpu)}; " if session.freed_gpu else ""
    was_warned = session.warned is not None
    session = desk.apply(
        session.id,
        Fact.REQUEUE_OBSERVED,
        f"hibernated {clock(desk.clock.now())}; {freed}the job waits, {how}",
        {"freed_gpu": session.freed_gpu} if session.freed_gpu else None,
        restarts=job.restarts,
        warned=None,
        kept_until=0.0,
    )
    if was_warned:
        id = secrets.token_hex(8)
        notice = tell.notice_of(desk, session, NoticeKind.HIBERNATED, session.reason, id)
        tell.send(desk, session, notice, terminals=False)


async def _requeue(desk: Desk, session: Session) -> None:
    detail = await detail_of(desk, session)
    if detail is None or not same_job(session.id, session.restarts, detail.job):
        return  # gone() will say so
    job = detail.job
    if job.restarts > session.restarts:
        return  # row() will show it
    if not job.running and not (job.finished and job.state not in _CANCELLED):
        return  # completing
    session = _remember(desk, session, detail)
    # Before the requeue, so that `sacct -D` keeps it with the run that ends.
    said = hibernated(session, desk.clock.now())
    await tell.annotate(desk, session, said, said)
    # The state is settled by looking at the world, so the intent holds no more than the try.
    intent = desk.journal.intend(session.id, "requeue", json.dumps({"restarts": session.restarts}))
    try:
        await requeue_held(desk, session)
    except RequeueFailed as error:
        desk.journal.settle(intent, f"refused: {error.message}")
        await _refused(desk, session, error.message)


async def requeue_held(desk: Desk, session: Session) -> None:
    """S1: only for a session whose image is committed. (One that waits for its restore has nothing
    alive, and its image may be one that was committed unseen.)"""
    if session.checkpoint < 0 and session.state is not State.RESTORING:
        raise ProgrammingError(f"S1: {session.id} has no committed checkpoint")
    try:
        await desk.scheduler.requeue_held(session.job, special_exit=desk.settings.special_exit)
    finally:
        # Also after a time-out: the order may have arrived, so older rows say nothing.
        desk.touch(session.id)


def _remember(desk: Desk, session: Session, detail: JobDetail) -> Session:
    """What will be given back, and how much of the time limit is left."""
    job, old = detail.job, session.saved
    ours = old is not None and not old.returned
    warned = session.warned
    warning = warned is not None and warned.commented and is_ours(detail.comment)
    comment = warned.comment if warned is not None and warning else detail.comment
    saved = Saved(
        comment=old.comment if old is not None and ours else comment,
        # On a job that was restored before, the list of nodes is still ours.
        excluded_nodes=old.excluded_nodes if old is not None else detail.excluded_nodes,
        time_limit=old.time_limit if old is not None else job.time_limit,
    )
    return desk.update(session.id, saved=saved, time_left=_time_left(session, job))


def _time_left(session: Session, job: Job) -> int:
    """Seconds; at least one, since 0 stands for no limit. Slurm's whole minutes were rounded up
    the last time: that is not given again and again, unless somebody has changed the limit."""
    if not job.time_limit:
        return 0
    ours = session.time_left and whole_minutes(session.time_left) == job.time_limit
    return max(1, (session.time_left if ours else job.time_limit) - job.time_used)


def whole_minutes(seconds: float) -> int:
    """Seconds, up to the next full minute."""
    return math.ceil(seconds / 60) * 60


async def _refused(desk: Desk, session: Session, why: str) -> None:
    """Slurm said no. Where the job moved on meanwhile that is no answer; else the session gets its
    allocation back at once."""
    detail = await detail_of(desk, session)
    if detail is None or detail.job.restarts > session.restarts or not detail.job.running:
        desk.note(session.id, "requeue-refused-late", why)
        if detail is not None and detail.job.finished:
            end(desk, session, f"the job ended as {detail.job.state} and can't be requeued: {why}")
        return
    _bring_back(desk, session, why)


def _bring_back(desk: Desk, session: Session, why: str) -> None:
    """Restore it in the allocation that it still has."""
    order = order_for(session, Verb.RESTORE_IN_PLACE, why)
    give_order(desk, session, order, Fact.REQUEUE_REFUSED, why)


def in_place(desk: Desk, session: Session) -> bool:
    """Whether a RESTORING session is restored in the allocation it was dumped in."""
    return session.state is State.RESTORING and session.checkpoint == session.restarts
