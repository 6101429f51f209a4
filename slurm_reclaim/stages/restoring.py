"""RESTORING: from the job's start until its processes are seen alive, or until it is held again
with the reason, the image kept and another node next time."""

from __future__ import annotations

from slurm_reclaim.errors import RequeueFailed
from slurm_reclaim.model.job import Job
from slurm_reclaim.model.lifecycle import Fact
from slurm_reclaim.model.order import Living, SessionReport
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.ending import end, gone, row
from slurm_reclaim.stages.requeue import annotate, in_place, requeue_held
from slurm_reclaim.stages.start import restore_ordered
from slurm_reclaim.stages.wording import held_again

# Endings of a job that say nothing of its owner's will: the image is still the session.
_MISHAPS = frozenset(
    {"BOOT_FAIL", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"}
)  # fmt: skip


async def step(desk: Desk, session: Session) -> None:
    told = _told(desk, session)
    if told is not None and told.living is Living.RUNNING:
        _alive(desk, session, told)
        return
    job = row(desk, session)
    if job is None:
        why = await gone(desk, session)
        if why:
            end(desk, session, f"{why}; its checkpoint is left to retention")
            return
    if in_place(desk, session):
        if job is not None and job.finished:
            end(desk, session, f"the job ended before it was restored in place: {job.state}")
        return
    if told is not None and told.living is Living.RESTORE_FAILED:
        await _hold_again(desk, session, job, told.reason or "the restore failed")
    elif job is not None:
        await _by_slurm(desk, session, job, told)


def _told(desk: Desk, session: Session) -> SessionReport | None:
    found = desk.view.report_of(session)
    # A report from before the transition speaks of what was: committed, in the same incarnation.
    return found[2] if found is not None and found[1].at >= session.since else None


def _alive(desk: Desk, session: Session, told: SessionReport) -> None:
    desk.settle(session.id, "restore", "alive")
    if told.restored:
        size = told.processes
        reason = f"restored on {session.node}, {size} process{'es' if size != 1 else ''} alive"
        desk.drop_orders(session.id, "done: seen in a report")
        desk.apply(session.id, Fact.RESTORE_SUCCEEDED, reason, {"processes": size}, bad_nodes=())
        return
    # S10: must not happen, so it must not pass in silence. The image stays.
    desk.note(
        session.id,
        "started-from-scratch",
        f"the job started from scratch on {session.node} although it has a checkpoint, which is "
        "kept",
    )
    end(desk, session, "the job was started from scratch; the checkpoint is kept")


async def _by_slurm(desk: Desk, session: Session, job: Job, told: SessionReport | None) -> None:
    if job.restarts > session.restarts:
        _requeued(desk, session, job)
    elif job.finished:
        if told is not None and job.state in _MISHAPS:
            await _hold_again(desk, session, job, f"the job ended during the restore: {job.state}")
        else:
            end(desk, session, f"the job ended: {job.state}")
    elif job.running and told is None and (why := _nobody_there(desk, session, job)):
        await _hold_again(desk, session, job, why)


def _requeued(desk: Desk, session: Session, job: Job) -> None:
    """The restore is over: by us, by the node itself when no agent came, or by Slurm."""
    if not (job.waiting or job.running):
        return  # still completing
    desk.settle(session.id, "restore", "requeued")
    desk.settle(session.id, "requeue", "observed")
    if not job.held:
        desk.apply(
            session.id,
            Fact.NODE_LOST,
            f"Slurm requeued the job from {session.node}",
            restarts=job.restarts,
            fence=session.node,
        )
        return
    failed = session.node in session.bad_nodes
    reason = session.reason if failed else f"{session.node} held the job again by itself"
    desk.apply(
        session.id,
        Fact.RESTORE_FAILED,
        reason,
        restarts=job.restarts,
        bad_nodes=_with(session.bad_nodes, session.node),
    )


def _nobody_there(desk: Desk, session: Session, job: Job) -> str:
    """Why it is known that nothing lives there although the job has run for restore_wait: the
    agent is up and does not have it; or it was never heard of since the start, and was not told to
    restore. Silence after that order is unknown, and unknown must not kill a session (S4)."""
    now, wait = desk.clock.now(), desk.settings.restore_wait
    since = max(session.since, desk.view.started)
    if now - since <= wait:
        return ""
    heard = desk.view.fresh(session.node, now, desk.settings.silent_after)
    if heard is not None and heard.at - since > wait:
        return f"the session did not reach the agent on {session.node} within {wait:.0f} s"
    last = desk.view.agents.get(session.node)
    if (last is None or last.at < session.since) and not restore_ordered(desk, session):
        return f"the agent on {session.node} was not heard of for {wait:.0f} s"
    return ""


async def _hold_again(desk: Desk, session: Session, job: Job | None, why: str) -> None:
    """The reason and the node go into the journal first: the next answer of Slurm shows only that
    the job is held."""
    reason = f"not restored on {session.node}: {why}"
    session = desk.update(
        session.id, reason=reason, bad_nodes=_with(session.bad_nodes, session.node)
    )
    if job is None and desk.touched.get(session.id, 0.0) > session.since:
        return  # asked already; the next answer of Slurm will tell
    detail = await desk.scheduler.detail(session.id.job_id)
    if detail is None or detail.job.restarts > session.restarts:
        return
    if not (detail.job.running or detail.job.finished):
        return  # completing
    await annotate(desk, session, held_again(session, f"on {session.node}: {why}"))
    intent = desk.journal.intend(session.id, "requeue", str(session.restarts))
    try:
        await requeue_held(desk, session)
    except RequeueFailed as error:
        desk.journal.settle(intent, f"refused: {error.message}")
        desk.settle(session.id, "restore", "failed")
        desk.apply(
            session.id,
            Fact.RESTORE_IMPOSSIBLE,
            f"{reason}; and Slurm did not take the job back: {error.message}",
        )


def _with(nodes: tuple[str, ...], node: str) -> tuple[str, ...]:
    return nodes if not node or node in nodes else (*nodes, node)
