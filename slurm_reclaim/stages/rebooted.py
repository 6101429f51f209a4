"""A node that was booted anew: what ran there is gone, and Slurm sees it only when the node
registers, minutes later where the job had just started. Its agent says so at once."""

from __future__ import annotations

from slurm_reclaim.errors import RequeueFailed
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Report, SessionReport
from slurm_reclaim.model.session import Seen, Session
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.ending import detail_of

# An agent that was just started may not know all yet; and a second host that reports under the
# node's name, by mistake, must not have a session ended that the first one shows.
SETTLED = 5.0  # seconds, and at least two of the agents' intervals


def take_seen(desk: Desk, report: Report, told: SessionReport, session: Session) -> None:
    """Keep under which boot of its node an incarnation was shown."""
    if not report.boot_id or told.restarts != session.restarts or session.node != report.node:
        return
    if (seen := Seen(report.node, told.restarts, report.boot_id)) != session.seen:
        desk.update(session.id, seen=seen)


def lost(desk: Desk, session: Session) -> str:
    """Why the processes of the session's incarnation are known to be gone; "" where they are not.
    That a report does not name it says nothing (S4). That its node has another boot than the one
    under which it was shown does: no process outlives its kernel."""
    seen = session.seen
    if seen is None or not seen.boot:
        return ""
    if (seen.node, seen.restarts) != (session.node, session.restarts):
        return ""
    settings = desk.settings
    heard = desk.view.fresh(session.node, desk.clock.now(), settings.silent_after)
    if heard is None or heard.report.boot_id in ("", seen.boot):
        return ""
    if heard.at - heard.since < max(SETTLED, 2 * settings.config.agent.interval):
        return ""
    if any(node == session.node for node, _, _ in desk.view.reports_of(session)):
        return ""
    return f"{session.node} was booted anew, and what ran of it there is gone"


async def step(desk: Desk, session: Session) -> bool:
    """Whether what ran is known to be gone. Then Slurm is to do now what it does on the failure of
    a node: the job is requeued, and goes back to its last checkpoint (ending.incarnation_lost).
    Without one that is left to Slurm (S1)."""
    why = lost(desk, session)
    if why and session.checkpoint < 0:
        desk.note(session.id, "node-rebooted", f"{why}; there is no checkpoint")
    elif why:
        await _tell_slurm(desk, session, why)
    return bool(why)


async def _tell_slurm(desk: Desk, session: Session, why: str) -> None:
    detail = await detail_of(desk, session)
    if detail is None or not detail.job.running or detail.job.restarts != session.restarts:
        return  # Slurm knows already
    began = session.since if session.state is State.RESTORING else session.started
    if session.node not in detail.job.nodes or detail.job.started > began:
        return  # a slurmctld that went back has started it anew, under the same number
    desk.note(session.id, "node-rebooted", f"{why}; Slurm is told to requeue the job")
    intent = desk.journal.intend(session.id, "requeue", str(session.restarts))
    try:
        await desk.scheduler.requeue(session.job)
        desk.journal.settle(intent, "asked")
    except RequeueFailed as error:
        desk.journal.settle(intent, f"refused: {error.message}")
        desk.note(session.id, "requeue-refused", f"left to Slurm: {error.message}")
    finally:
        desk.touch(session.id)
