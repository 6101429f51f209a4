"""The end of a session, or of one incarnation of it, positively known from Slurm."""

from __future__ import annotations

from dataclasses import replace

from slurm_reclaim.model.job import Job, JobDetail
from slurm_reclaim.model.lifecycle import Fact, State
from slurm_reclaim.model.order import Living
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.view import counted, same_job, set_back

_ALIVE = frozenset({Living.RUNNING, Living.DUMPING, Living.RESTORING})

# Endings that say nothing of the owner's will. FAILED is among them: a job whose output file can't
# be opened on a node fails before anything of ours runs.
MISHAPS = frozenset(
    {"BOOT_FAIL", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"}
)  # fmt: skip


def row(desk: Desk, session: Session) -> Job | None:
    """The job's row, if it is newer than the session's last transition and the last thing we told
    Slurm about it; an older one may show what was before. None says nothing."""
    view = desk.view
    if view.asked <= max(session.since, desk.touched.get(session.id, 0.0)):
        return None
    job = view.jobs.get(session.id.job_id)
    if job is None:
        return None
    job = counted(_put_right(desk, session, job), job)
    return job if same_job(session.id, session.restarts, job) else None


def brought_up(desk: Desk, session: Session, job: Job) -> Session:
    """With what rules go by as Slurm shows it now: who moves a job to another QOS or partition, or
    renames it, may mean to exempt it."""
    now = {
        "name": job.name,
        "account": job.account,
        "partition": job.partition,
        "qos": job.qos,
    }
    if all(getattr(session, name) == value for name, value in now.items()):
        return session
    desk.terms.pop(session.id, None)
    return desk.update(session.id, **now)


async def detail_of(desk: Desk, session: Session) -> JobDetail | None:
    """What Slurm says of the session's job by itself, its restarts as we count them."""
    detail = await desk.scheduler.detail(session.id.job_id)
    if detail is None:
        return None
    current = _put_right(desk, session, detail.job)
    return replace(detail, job=counted(current, detail.job))


def _put_right(desk: Desk, session: Session, job: Job) -> Session:
    """Slurm went back to an earlier run of this very job: it is no other job, and the numbers of
    our checkpoints must go on from the highest."""
    current = desk.sessions.get(session.id, session)
    lost = set_back(current, job)
    if lost <= current.set_back:
        return current
    desk.note(
        session.id,
        "slurm-set-back",
        f"Slurm shows run {job.restarts} of the job, which is in run {current.restarts}: "
        "slurmctld was restarted from an older state",
    )
    return desk.update(session.id, set_back=lost)


async def gone(desk: Desk, session: Session) -> str:
    """Why the job is known to be no more, "" where it is not known. A job missing from the list is
    asked for by itself before it is believed gone."""
    view = desk.view
    if view.asked <= max(session.since, desk.touched.get(session.id, 0.0)):
        return ""
    job = view.jobs.get(session.id.job_id)
    if job is not None and same_job(session.id, session.restarts, counted(session, job)):
        return ""
    detail = await detail_of(desk, session)
    if detail is None:
        return "Slurm no longer knows the job"
    if not same_job(session.id, session.restarts, detail.job):
        return "the job number belongs to another job now"
    return ""


def end(desk: Desk, session: Session, reason: str) -> None:
    """Its checkpoint, if any, is left to retention."""
    desk.apply(session.id, Fact.JOB_GONE, reason)


def incarnation_lost(desk: Desk, session: Session, job: Job) -> None:
    """Slurm requeued the job without us: the processes are gone, or cut off with their node."""
    if session.checkpoint < 0 and session.state is not State.HIBERNATING:
        end(desk, session, "Slurm requeued the job, and there was no checkpoint; it starts over")
        return
    desk.drop_orders(session.id, "the incarnation was lost")
    desk.settle(session.id, "restore", "the incarnation was lost")
    node = session.node or "its node"
    desk.apply(
        session.id,
        Fact.NODE_LOST,
        f"Slurm requeued the job from {node} (restart {job.restarts}); "
        "it goes back to its last checkpoint",
        restarts=job.restarts,
        fence=session.node,
    )


def forgotten(desk: Desk, session: Session) -> bool:
    """Of a job that waits in the same incarnation in which it ran: whether its node says that
    nothing of it runs there. A slurmctld that died before it had saved its state went back to an
    older one."""
    heard = desk.view.fresh(session.node, desk.clock.now(), desk.settings.silent_after)
    if heard is None or heard.at <= session.since:
        return False
    return desk.view.report_of(session) is None


def count_on(desk: Desk, session: Session, job: Job) -> tuple[Session, Job]:
    """Slurm has forgotten one more start of the job. Our count goes on, so that the next life and
    its checkpoint are not taken for this one."""
    after = desk.update(session.id, set_back=session.set_back + 1)
    return after, replace(job, restarts=job.restarts + 1)


def lift_fence(desk: Desk, session: Session) -> Session:
    """S3: the lost node may still run the older incarnation, until its agent says it does not."""
    if not session.fence:
        return session
    heard = desk.view.fresh(session.fence, desk.clock.now(), desk.settings.silent_after)
    if heard is None or heard.at <= session.since:
        return session
    if any(node == session.fence for node, _, _ in older_incarnations(desk, session)):
        return session
    desk.note(session.id, "fence-lifted", f"{session.fence} answers and no longer runs it")
    return desk.update(session.id, fence="")


def older_incarnations(desk: Desk, session: Session) -> list[tuple[str, int, str]]:
    """(node, restart count, what it does) of incarnations before this one that agents show alive.
    A silent agent shows nothing: for its node there is the fence."""
    now, silent_after = desk.clock.now(), desk.settings.silent_after
    return [
        (node, told.restarts, told.living.value)
        for node, heard, told in desk.view.reports_of(session)
        if told.restarts < session.restarts
        and told.living in _ALIVE
        and now - heard.at <= silent_after
    ]
