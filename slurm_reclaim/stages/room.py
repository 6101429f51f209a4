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
    now, rules = desk.clock.now(), desk.settings.config.limits
    mine = session.warned.deadline if session.warned is not None else now

    def before(other: Session) -> bool:
        return (
            other.state is State.WARNED
            and other.warned is not None
            and other.warned.deadline < mine
            # One whose agent is silent waits for that and takes no turn.
            and desk.view.fresh(other.node, now, desk.settings.silent_after) is not None
        )

    on_node = [*desk.sessions.of_node(session.node)]
    in_all = sum(1 for state in _AT_WORK for _ in desk.sessions.of_state(state))
    # Thousands may be waiting, each of which asks: only as many are counted as say something.
    for other in desk.sessions.of_state(State.WARNED):
        if in_all >= rules.per_store:
            break
        in_all += before(other)
    load = limits.Load(
        on_node=sum(each.state in _AT_WORK or before(each) for each in on_node),
        in_all=in_all,
        last_hour=desk.history.begun(now - 3600.0),
    )
    return limits.full(rules, load)


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
    desk.history.clear()
    desk.note_all("brake-released", f"by {by}")
