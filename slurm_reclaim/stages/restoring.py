"""RESTORING: from the job's start until its processes are seen alive, or until it is held again
with the reason, the image kept and another node next time."""

from __future__ import annotations

from slurm_reclaim.model.job import Job
from slurm_reclaim.model.lifecycle import Fact
from slurm_reclaim.model.order import Living, SessionReport
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages import rebooted
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.ending import MISHAPS, count_on, end, forgotten, gone, row
from slurm_reclaim.stages.mishap import NOT_RESTORED, bad_nodes, hold_again
from slurm_reclaim.stages.requeue import in_place
from slurm_reclaim.stages.start import restore_ordered

# Slurm's own words for a job that a node could not start, which it then holds by itself.
_NOT_LAUNCHED = ("launch failed", "launch failure")


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
    if told is not None and told.living is Living.RESTORE_FAILED:
        # Also one in place: if Slurm has refused the requeue before, it says so again.
        await hold_again(desk, session, job, told.reason or "the restore failed")
    elif job is not None and job.running and await rebooted.step(desk, session):
        return
    elif job is not None and (
        job.restarts > session.restarts or job.waiting or not in_place(desk, session)
    ):
        await _by_slurm(desk, session, job, told)
    elif job is not None and job.finished:
        end(desk, session, f"the job ended before it was restored in place: {job.state}")


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
        desk.apply(
            session.id,
            Fact.RESTORE_SUCCEEDED,
            reason,
            {"processes": size},
            bad_nodes=(),
            accepted=(),
            started=desk.clock.now(),
        )
        return
    if session.checkpoint < 0:
        end(desk, session, "there was no checkpoint; the job starts over")
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
        if job.state in MISHAPS and not _was_restored(desk, session):
            await hold_again(desk, session, job, f"the job ended during the restore: {job.state}")
        else:
            end(desk, session, f"the job ended: {job.state}")
    elif job.waiting and forgotten(desk, session):
        _never_started(desk, session, job)
    elif job.running and told is None and (why := _nobody_there(desk, session, job)):
        await hold_again(desk, session, job, why)


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
    if session.reason.startswith(NOT_RESTORED):
        reason = session.reason
    elif job.reason.startswith(_NOT_LAUNCHED):
        reason = f"{NOT_RESTORED} {session.node}: {job.reason} (see slurmd's log there)"
    else:
        reason = f"{session.node} held the job again by itself"
    desk.apply(
        session.id,
        Fact.RESTORE_FAILED,
        reason,
        restarts=job.restarts,
        bad_nodes=bad_nodes(session, session.node),
    )


def _never_started(desk: Desk, session: Session, job: Job) -> None:
    """Slurm went back to before the job started, and ended what ran of it. It is held, or waits for
    its start as if nothing had been."""
    desk.settle(session.id, "restore", "forgotten by Slurm")
    desk.kept.pop(session.id, None)  # what the held job was given is forgotten, too
    reason = f"Slurm went back to before the job started on {session.node}"
    if session.checkpoint == session.restarts:
        # It was to be restored in place.
        session, job = count_on(desk, session, job)
    desk.apply(session.id, Fact.RESTORE_FAILED, reason, restarts=job.restarts)


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


def _was_restored(desk: Desk, session: Session) -> bool:
    """A session that came back and ended by itself before the next report has really ended."""
    return any(
        event.kind == "session-restored"
        and event.node == session.node
        and event.at >= session.since - 1
        for event in desk.journal.events(job_id=session.id.job_id, limit=50)
    )
