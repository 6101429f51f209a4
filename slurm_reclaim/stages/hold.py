"""[held]: a hibernated job is kept such that anyone's release of it is safe, its owner's own
`scontrol release` included: nodes that can't restore it are excluded, the time limit is what was
left, and Slurm's two minutes after a requeue are gone but for two seconds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slurm_reclaim.errors import RequeueFailed
from slurm_reclaim.model.job import Job
from slurm_reclaim.model.lifecycle import Fact
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.fit import Fit, fit
from slurm_reclaim.stages.mishap import unrestored
from slurm_reclaim.stages.requeue import whole_minutes
from slurm_reclaim.stages.stranded import mark
from slurm_reclaim.stages.uploads import only_node

# How the reason begins of a job that was released and that Slurm holds until a node fits.
NO_NODE = "released, but no node can restore it now"
# Seconds until a job may start that was just seen to wait. A slurmd refuses a credential that is
# not newer, in whole seconds, than the end of the job's last run there ("already killed, do not
# launch batch job"), and slurmctld then takes the job for failed: it would be gone, and only its
# checkpoint left. That is what Slurm's own two minutes are for.
SETTLE = 2


@dataclass(frozen=True, slots=True)
class Kept:
    """What a waiting job was last given, and when it may start (Unix seconds)."""

    restarts: int
    excluded: str
    start: float = field(compare=False, default=0.0)


async def step(desk: Desk, session: Session) -> None:
    """HIBERNATED: keep the job fit to be released, and see when somebody does."""
    found = await unrestored(desk, session, "while it was hibernated")
    if found is None:
        return
    session, job = found
    if job.running:
        started(desk, session, job)
    elif job.waiting and not job.held:
        desk.settle(session.id, "release", "observed")
        by_slurm = session.reason.startswith(NO_NODE)
        who = "by Slurm: a node fits again" if by_slurm else "by the owner or an operator"
        desk.apply(session.id, Fact.RELEASED, f"released {who}")
    elif job.waiting:
        await keep(desk, session, job)


def started(desk: Desk, session: Session, job: Job) -> Session:
    node = job.nodes[0] if job.nodes else ""
    reason = f"the job started on {node}; the session is being restored"
    return desk.apply(
        session.id, Fact.JOB_STARTED, reason, node=node, restarts=job.restarts, tres=job.tres
    )


async def keep(desk: Desk, session: Session, job: Job, *, now: bool = False) -> Fit:
    """Give the waiting job what it lacks; what it was given already is left to its owner. `now`:
    it is about to be released, so that silent nodes are not waited for."""
    found = suitable(desk, session, job)
    session = mark(desk, session, job)
    if found.silence and not now and not _listened_long_enough(desk):
        return found  # we were just started, and agents that are well may not have reported yet
    plan = Kept(job.restarts, _excluded(desk, session, found))
    before = desk.kept.get(session.id)
    if before == plan:
        return found
    first = before is None or before.restarts != plan.restarts
    limit = _time_limit(desk, session, job) if first else 0
    try:
        await desk.scheduler.prepare_held(
            session.job,
            time_limit=limit,
            excluded_nodes=plan.excluded,
            start_in=SETTLE if first else -1,
            comment="",
        )
    except RequeueFailed as error:
        desk.view.doubt_nodes()  # perhaps for a node that Slurm no longer has
        desk.note(session.id, "hold-refused", error.message)
        return found
    start = desk.clock.now() + SETTLE if first or before is None else before.start
    desk.kept[session.id] = replace(plan, start=start)
    if not found.nodes:
        desk.note(session.id, "no-node-fits", f"no node can restore it now: {found.explain()}")
    return found


def suitable(desk: Desk, session: Session, job: Job) -> Fit:
    now, silent_after = desk.clock.now(), desk.settings.silent_after
    return fit(session, job, desk.view, now, silent_after, only_node(desk, session))


def _excluded(desk: Desk, session: Session, found: Fit) -> str:
    """What the owner excluded stays. Slurm refuses a list with a node that it no longer has."""
    own = session.saved.excluded_nodes if session.saved is not None else ""
    # To fold thousands of names takes a while, and most held jobs get the same list.
    memo, key = desk.view.recall(desk.clock.now()), ("excluded", own, found.key)
    if found.key is None or memo.get(found.key) is not found:
        memo = {}
    if key not in memo:
        still_there = {name for name in desk.names.expand(own) if name in desk.view.nodes}
        memo[key] = desk.names.fold(still_there | found.unfit.keys())
    return str(memo[key])


def _time_limit(desk: Desk, session: Session, job: Job) -> int:
    """Seconds; 0 leaves it as it is. A whole new limit would be a gift at the cost of others."""
    if session.time_left == 0:
        return 0
    limit = max(session.time_left, int(desk.settings.tail))
    return limit if whole_minutes(limit) != job.time_limit else 0


def _listened_long_enough(desk: Desk) -> bool:
    return desk.clock.now() - desk.view.started > desk.settings.silent_after
