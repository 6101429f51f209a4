"""hibernate, at the controller: may it be, then the order to the agent, and what comes of it."""

from __future__ import annotations

from dataclasses import replace

from slurm_reclaim.errors import AgentUnavailable, NotReclaimable, WrongState
from slurm_reclaim.model.job import Job, JobDetail
from slurm_reclaim.model.lifecycle import RUNNING_STATES, Fact, State
from slurm_reclaim.model.order import Living, Order, SessionReport, Verb
from slurm_reclaim.model.session import Session, Warned
from slurm_reclaim.stages import rebooted, standing
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.ending import MISHAPS, detail_of, end, gone, incarnation_lost, row
from slurm_reclaim.stages.judge import clock_ahead, cooled, terms_of
from slurm_reclaim.stages.orders import order_for
from slurm_reclaim.stages.view import Heard
from slurm_reclaim.stages.wording import committed_as

# Seconds beyond the agent's own limit for a dump; only then an unanswered order is given up.
GRACE = 120.0


async def hibernate(desk: Desk, session: Session, reason: str) -> Session:
    """Ask for it. Raises Refused where it can't be and changes nothing then. Call with the
    session's lock held."""
    if session.state not in RUNNING_STATES:
        raise wrong_state(session, "hibernated")
    await see_that_it_can(desk, session)
    if session.kept_until:
        # Its owner, or who may speak for the owner, wants it now.
        session = desk.update(session.id, kept_until=0.0)
    desk.drop_orders(session.id, "overtaken: it is hibernated now")
    order = order_for(session, Verb.HIBERNATE, reason, since=desk.clock.now())
    return give_order(desk, session, order, Fact.HIBERNATE_ASKED, reason)


def hibernate_idle(desk: Desk, session: Session, reason: str, until: float) -> Session:
    """The warning ran out: hibernate it unless it was used after `until` (Unix seconds of our
    clock), which its agent sees before and after the freeze (S5). Call after `see_that_it_can`.
    Raises Unavailable."""
    heard, _ = _attached(desk, session)
    # Not later than its agent's own last word, whatever the clocks say.
    since = min(until + clock_ahead(heard.report.at, heard.at), heard.report.at)
    order = order_for(
        session,
        Verb.HIBERNATE,
        reason,
        since=since,
        cancel_on_activity=True,
        optional=tuple(sorted(terms_of(desk, session).yardstick.optional)),
    )
    return give_order(desk, session, order, Fact.DEADLINE_PASSED, reason)


def stop(desk: Desk, session: Session, reason: str) -> Session:
    """HIBERNATING, and its owner says no: the agent is told, and until it has committed the tree
    runs on. Where it has, the session is restored in place (requeue.py)."""
    desk.give(session, order_for(session, Verb.CANCEL, reason))
    return desk.sessions[session.id]


async def see_that_it_can(desk: Desk, session: Session) -> Heard:
    """What its agent last said. Raises AgentUnavailable, WrongState and NotReclaimable."""
    heard, told = _attached(desk, session)
    detail = await detail_of(desk, session)
    if detail is None or not detail.job.running or detail.job.restarts != session.restarts:
        state = "is not known to Slurm" if detail is None else f"is {detail.job.state}"
        raise WrongState(f"job {session.job} {state}; only a running job can be hibernated")
    if detail.job.suspended:
        # Saved like that it would come back stopped, and Slurm would know of nothing to resume.
        raise WrongState(
            f"job {session.job} is suspended; only a running job can be hibernated",
            hint=f"an operator, or Slurm, lets it run on: scontrol resume {session.job}",
        )
    refuse_unfit(session.job, detail)
    if told.living is not Living.RUNNING:
        raise WrongState(f"job {session.job} is {told.living.value} on {session.node}")
    if why := standing.over_quota(desk, session, told.memory):
        raise NotReclaimable(why, hint="make room: reclaim checkpoints list")
    return heard


def give_order(desk: Desk, session: Session, order: Order, fact: Fact, reason: str) -> Session:
    """Intent, transition, order, in this order (S7)."""
    intent = desk.intend(session, order)
    after = desk.apply(session.id, fact, reason)
    desk.orders.give(session.node, intent, order)
    return after


def refuse_unfit(job: str, detail: JobDetail) -> None:
    """Raises NotReclaimable for a job of a kind that Slurm can't requeue in one piece."""
    if detail.het:
        raise NotReclaimable(
            f"job {job} is part of a heterogeneous job",
            hint="only single-node batch jobs can be hibernated",
        )
    if not detail.batch:
        raise NotReclaimable(
            f"job {job} was started by salloc or srun, which Slurm can't requeue",
            hint="start the session with sbatch",
        )
    if detail.node_count != 1:
        raise NotReclaimable(
            f"job {job} runs on {detail.node_count} nodes",
            hint="only single-node batch jobs can be hibernated",
        )
    if not detail.requeue:
        raise NotReclaimable(
            f"job {job} may not be requeued (--no-requeue, or JobRequeue=0)",
            hint=f"allow it: scontrol update JobId={job} Requeue=1",
        )


_LEFT = (
    "; is its checkpoint still there? reclaim checkpoints list; an administrator can take it out: "
    "reclaim checkpoints export"
)


def wrong_state(session: Session, verb: str) -> WrongState:
    runs = f"it runs on {session.node}: there is nothing to restore"
    hints = {
        **dict.fromkeys(RUNNING_STATES, runs),
        State.HIBERNATED: f"bring it back: reclaim restore {session.job}",
        State.QUEUED: f"it waits for a node: squeue -j {session.job} --start",
        State.RESTORING: "wait until it runs",
        State.ENDED: "the job is over" + (_LEFT if session.checkpoint >= 0 else ""),
    }
    return WrongState(
        f"job {session.job} can't be {verb}: it is {session.state} ({session.reason})",
        hint=hints.get(session.state, f"look again: reclaim show {session.job}"),
    )


def _attached(desk: Desk, session: Session) -> tuple[Heard, SessionReport]:
    now, silent_after = desk.clock.now(), desk.settings.silent_after
    found = desk.view.report_of(session)
    if why := rebooted.lost(desk, session):
        raise WrongState(f"job {session.job} is not running: {why}")
    if found is None or desk.view.fresh(found[0], now, silent_after) is None:
        raise AgentUnavailable(
            f"the agent on {session.node or 'the node'} of job {session.job} is not heard of",
            hint="the session runs on; is reclaim-agent running there?",
        )
    return found[1], found[2]


async def step(desk: Desk, session: Session) -> None:
    """HIBERNATING: the answer comes by results.py; here what comes without one."""
    job = row(desk, session)
    if job is not None and await _over(desk, session, job):
        return
    if job is None and (why := await gone(desk, session)):
        end(desk, session, why)
        return
    found = desk.view.report_of(session)
    if found is None:
        return
    told = found[2]
    if told.living is Living.COMMITTED and told.checkpoint == session.restarts:
        committed(desk, session, told)
    elif told.living is Living.RUNNING and _overdue(desk, session, found[1].at):
        desk.drop_orders(session.id, "given up: not answered in time")
        reason = f"the agent on {session.node} did not answer the order in time; the session runs"
        change = {"warned": failed(session), **cooled(desk, "not answered")}
        desk.apply(session.id, Fact.DUMP_FAILED, reason, **change)


def failed(session: Session) -> Warned | None:
    """Its warning, where it had one: whoever was told is told what became of it (warn.py)."""
    return None if session.warned is None else replace(session.warned, failed=True)


async def _over(desk: Desk, session: Session, job: Job) -> bool:
    if job.restarts > session.restarts:
        incarnation_lost(desk, session, job)
        return True
    if job.finished and not (job.state in MISHAPS and desk.orders.of_session(str(session.id))):
        end(desk, session, f"the job ended while it was being hibernated: {job.state}")
        return True
    # Ended by nobody's will, perhaps right after the commit: its agent, asked already, will say.
    return False


def _overdue(desk: Desk, session: Session, heard: float) -> bool:
    """Without an order on the book nobody will ever answer (a journal older than the agents)."""
    if desk.orders.of_session(str(session.id)) is None:
        return heard > session.since
    return desk.clock.now() - session.since > desk.settings.dump_timeout + GRACE


def committed(desk: Desk, session: Session, told: SessionReport) -> None:
    """The agent shows a committed checkpoint of this incarnation, whoever ordered it: from now on
    the image is the session."""
    if session.state in RUNNING_STATES:
        desk.apply(session.id, Fact.HIBERNATE_ASKED, told.reason or "its agent hibernated it")
    freed = told.needs.vram if told.needs is not None else 0
    desk.apply(
        session.id,
        Fact.CHECKPOINT_COMMITTED,
        committed_as(told.checkpoint_bytes, told.reason, freed_gpu=freed),
        {"bytes": told.checkpoint_bytes},
        checkpoint=told.checkpoint,
        saved_on=session.node,
        uploaded=-1,
        checkpoint_bytes=told.checkpoint_bytes,
        needs=told.needs or session.needs,
        freed_gpu=freed,
        unfit=None,
        bad_nodes=(),
        blockers=(),
    )
    order = desk.orders.of_session(str(session.id))
    if order is not None:
        desk.drop_orders(session.id, "done: seen in a report")
