"""release: the owner wants the session back; and what is seen of the job until it starts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from slurm_reclaim.errors import AgentUnavailable, NotPermitted, Refused, RequeueFailed, WrongState
from slurm_reclaim.model.job import Job, JobDetail
from slurm_reclaim.model.lifecycle import Fact, State
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.ending import detail_of, lift_fence
from slurm_reclaim.stages.fit import SILENT, Fit
from slurm_reclaim.stages.hibernate import wrong_state
from slurm_reclaim.stages.hold import NO_NODE, SETTLE, keep, started, suitable
from slurm_reclaim.stages.mishap import unrestored
from slurm_reclaim.stages.view import same_job

FIRST_REPORTS = 15.0  # seconds
LATELY = 300.0  # seconds since an agent that is silent was heard of, so that it may come back soon
_UNDER_WAY = frozenset({State.QUEUED, State.RESTORING})


async def restore(
    desk: Desk, session: Session, *, operator: bool, by: str, accept: tuple[str, ...] = ()
) -> Session:
    """Release the hibernated job onto nodes that can restore it. Raises Refused, Unavailable,
    RequeueFailed; nothing is released then. Call with the session's lock held. `accept`: files
    that may have changed while it slept; each request says it anew."""
    if session.state in _UNDER_WAY:
        return desk.update(session.id, accepted=accept) if accept else session
    if session.state is not State.HIBERNATED:
        raise wrong_state(session, "restored")
    if session.checkpoint < 0:
        raise Refused(
            f"job {session.job} has no checkpoint: it was requeued before one was complete",
            hint=f"scontrol release {session.job} starts it from the top",
        )
    detail = await detail_of(desk, session)
    job = _waiting(session, detail)
    if detail is not None and detail.admin_hold and not operator:
        raise NotPermitted(
            f"job {session.job} is held by an operator, who alone can release it",
            hint="ask the site's support why",
        )
    session = _through_fence(desk, session, operator=operator, by=by)
    session = _with_accepted(desk, session, accept)
    session = _try_again(desk, session, job)
    _refuse_unfit(desk, session, suitable(desk, session, job))
    await keep(desk, session, job, now=True)
    await _settled(desk, session)
    intent = desk.journal.intend(session.id, "release", by)
    try:
        if job.held:
            await desk.scheduler.release(session.job)
    except RequeueFailed as error:
        desk.journal.settle(intent, f"refused: {error.message}")
        raise
    finally:
        desk.touch(session.id)
    after = desk.apply(session.id, Fact.RELEASED, f"restore asked by {by}", restarts=job.restarts)
    desk.journal.settle(intent, "done")
    return after


async def first_reports(desk: Desk, session: Session) -> None:
    """A controller that has just started has heard of no node, and an agent that is just being
    restarted is silent: that is no answer for an owner. Returns when a node fits, none can any more
    by what is known, nobody is expected, or after a while."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + FIRST_REPORTS
    while loop.time() < deadline:
        current = desk.sessions.get(session.id)
        if current is None or current.state is not State.HIBERNATED:
            return
        job = desk.view.jobs.get(session.id.job_id)
        if job is not None:
            found = suitable(desk, current, job)
            if found.nodes or not _expected(desk, found):
                return
        elif not _young(desk):
            return
        await asyncio.sleep(0.1)


async def _settled(desk: Desk, session: Session) -> None:
    """A job that is released before it may start would wait for Slurm's next turn."""
    kept = desk.kept.get(session.id)
    if kept is not None and (left := kept.start - desk.clock.now()) > 0:
        await asyncio.sleep(min(left, SETTLE))


def _young(desk: Desk) -> bool:
    """Whether agents that are well may not have reported to us yet."""
    return desk.clock.now() < desk.view.started + desk.settings.silent_after


def _expected(desk: Desk, found: Fit) -> bool:
    """Whether an agent that is missing may report any moment."""
    if _young(desk):
        return found.silence
    now, agents = desk.clock.now(), desk.view.agents
    silent = (agents.get(node) for node, why in found.unfit.items() if why == SILENT)
    return any(heard is not None and now - heard.at < LATELY for heard in silent)


def _through_fence(desk: Desk, session: Session, *, operator: bool, by: str) -> Session:
    """S3, and an operator's word that a lost node is off."""
    session = lift_fence(desk, session)
    if not session.fence:
        return session
    if not operator:
        raise AgentUnavailable(
            f"{session.fence} was lost and may still run the session of job {session.job}",
            hint="wait until its agent answers; an operator who knows that the node is off "
            f"may say so with: reclaim restore {session.job}",
        )
    desk.note(session.id, "fence-lifted", f"{by} says that {session.fence} no longer runs it")
    return desk.update(session.id, fence="")


def _with_accepted(desk: Desk, session: Session, accept: tuple[str, ...]) -> Session:
    """A changed file is no node's fault: with it accepted, all are as good as before."""
    if accept == session.accepted:
        return session
    bad = () if accept else session.bad_nodes
    return desk.update(session.id, accepted=accept, bad_nodes=bad)


def _try_again(desk: Desk, session: Session, job: Job) -> Session:
    """Where it failed on every node that is left, whatever it was may be mended by now."""
    if not session.bad_nodes or suitable(desk, session, job).nodes:
        return session
    again = replace(session, bad_nodes=())
    return desk.update(session.id, bad_nodes=()) if suitable(desk, again, job).nodes else session


def _waiting(session: Session, detail: JobDetail | None) -> Job:
    if detail is None or not same_job(session.id, session.restarts, detail.job):
        raise WrongState(f"job {session.job} is not known to Slurm any more")
    if not detail.job.waiting:
        raise WrongState(
            f"job {session.job} is {detail.job.state} in Slurm",
            hint="try again in a few seconds",
        )
    return detail.job


def _refuse_unfit(desk: Desk, session: Session, found: Fit) -> None:
    if found.nodes:
        return
    message = f"no node can restore job {session.job}: {found.explain()}"
    if found.silence:
        raise AgentUnavailable(message, hint="try again when reclaim-agent runs on these nodes")
    raise Refused(message, hint="its checkpoint is kept; tell an admin")


async def step(desk: Desk, session: Session) -> None:
    """QUEUED: released, not started yet. The nodes are kept in view: one that can't restore it
    any more must not get it."""
    found = await unrestored(desk, session, "before it started")
    if found is None:
        return
    session, job = found
    if job.running:
        started(desk, session, job)
    elif job.waiting and job.held:
        _held_again(desk, session, job)
    elif job.waiting:
        await keep(desk, session, job)


def _held_again(desk: Desk, session: Session, job: Job) -> None:
    if job.reason != "BadConstraints":
        reason = f"the job is held again: {job.reason or 'held'}"
        desk.apply(session.id, Fact.HELD_AGAIN, reason)
        return
    # Slurm holds a released job by itself while every node is excluded, and lets it go again when
    # one no longer is (seen with 24.11). Of all nodes that fit it may want those alone on which a
    # restore has failed (-w, -C): as in _try_again, whatever it was may be mended by now.
    reason = f"{NO_NODE}: {suitable(desk, session, job).explain()}"
    if session.bad_nodes:
        reason += "; it is tried there once more"
    desk.apply(session.id, Fact.HELD_AGAIN, reason, bad_nodes=())
