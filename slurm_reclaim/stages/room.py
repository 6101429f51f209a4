"""How much may be hibernated now, and the brake."""

from __future__ import annotations

from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.session import Session
from slurm_reclaim.policy import limits
from slurm_reclaim.stages import tell
from slurm_reclaim.stages.desk import Desk

BRAKE = "brake"
_AT_WORK = (State.HIBERNATING, State.REQUEUING)


def full(desk: Desk, session: Session) -> str:
    """Why this session must wait; "" where it need not. Whoever was due first goes first."""
    now = desk.clock.now()
    sessions = desk.sessions.values()
    at_work = [s for s in sessions if s.state in _AT_WORK]
    mine = session.warned.deadline if session.warned is not None else now
    before = [
        s
        for s in sessions
        if s.state is State.WARNED
        and s.warned is not None
        and s.warned.deadline < mine
        # One whose agent is silent waits for that and takes no turn.
        and desk.view.fresh(s.node, now, desk.settings.silent_after) is not None
    ]
    load = limits.Load(
        on_node=sum(s.node == session.node for s in (*at_work, *before)),
        in_all=len(at_work) + len(before),
        last_hour=desk.history.begun(now - 3600.0),
    )
    return limits.full(desk.settings.config.limits, load)


def watch(desk: Desk) -> None:
    """Pull the brake where too much goes wrong; an admin lets it go."""
    if desk.brake:
        return
    settings = desk.settings.config.limits
    counts = desk.history.counts(desk.clock.now() - settings.brake_span)
    why = limits.brake(settings, limits.Tally(**counts))
    if why:
        pull(desk, f"{why}; let it go with: reclaim brake --release")
        tell.send_admins(desk, desk.brake)


def pull(desk: Desk, reason: str) -> None:
    """From now on no idle session is warned or hibernated; survives restarts."""
    desk.journal.remember(BRAKE, reason)
    desk.brake = reason
    desk.note_all("brake-pulled", reason)


def release(desk: Desk, by: str) -> None:
    desk.journal.remember(BRAKE, "")
    desk.brake = ""
    # What went wrong before has been looked at.
    desk.history.entries.clear()
    desk.note_all("brake-released", f"by {by}")
