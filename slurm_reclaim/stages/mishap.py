"""A job that has an image ends, or does not get on, for reasons that are not its owner's will: the
image is still the session, so the job is held again."""

from __future__ import annotations

from slurm_reclaim.errors import RequeueFailed
from slurm_reclaim.model.job import Job
from slurm_reclaim.model.lifecycle import Fact
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages import tell
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.ending import (
    MISHAPS,
    brought_up,
    detail_of,
    end,
    gone,
    lift_fence,
    row,
)
from slurm_reclaim.stages.requeue import requeue_held
from slurm_reclaim.stages.wording import held_again

# How the reason begins that is ours; without it the node itself held the job again.
NOT_RESTORED = "not restored on"


async def unrestored(desk: Desk, session: Session, when: str) -> tuple[Session, Job] | None:
    """The job of a session that is its image, and the session brought up to it; None where there
    is nothing to go by, or where its end was dealt with."""
    job = row(desk, session)
    if job is None:
        if why := await gone(desk, session):
            end(desk, session, f"{why}; its checkpoint is left to retention")
        return None
    if job.finished:
        await _ended_before_restore(desk, session, job, when)
        return None
    session = lift_fence(desk, brought_up(desk, session, job))
    if job.restarts > session.restarts:
        session = desk.update(session.id, restarts=job.restarts)
    return session, job


async def _ended_before_restore(desk: Desk, session: Session, job: Job, when: str) -> None:
    """The job of a hibernated or released session is finished in Slurm. Where it had started
    meanwhile that was not on the node that the session slept on."""
    if job.state in MISHAPS:
        node = job.nodes[0] if job.nodes else ""
        await hold_again(desk, session, job, f"the job was ended {when}: {job.state}", node)
    else:
        end(desk, session, f"the job was ended {when}: {job.state}")


async def hold_again(
    desk: Desk, session: Session, job: Job | None, why: str, node: str | None = None
) -> None:
    """Requeue-hold a job whose restore came to nothing on `node` ("": on none that is known; None:
    on the session's). The reason and the node go into the journal first: the next answer of Slurm
    shows only that the job is held."""
    node = session.node if node is None else node
    reason = f"{NOT_RESTORED} {node}: {why}" if node else f"not restored: {why}"
    session = desk.update(session.id, reason=reason, bad_nodes=bad_nodes(session, node))
    if job is None and desk.touched.get(session.id, 0.0) > session.since:
        return  # asked already; the next answer of Slurm will tell
    detail = await detail_of(desk, session)
    if detail is None or detail.job.restarts > session.restarts:
        return
    if not (detail.job.running or detail.job.finished):
        return  # completing
    said = held_again(session, f"on {node}: {why}" if node else why)
    await tell.annotate(desk, session, said, said)
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


def bad_nodes(session: Session, node: str) -> tuple[str, ...]:
    """Another node next time; unless it was not this one's fault but that of the fence."""
    if not node or session.fence or node in session.bad_nodes:
        return session.bad_nodes
    return (*session.bad_nodes, node)
