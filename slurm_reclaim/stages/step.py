"""The next step of one session, by its state. Decided each time from what is seen, not from what
was meant to happen: so it does not matter where the last controller stopped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages import hibernate, hold, release, requeue, restoring, running
from slurm_reclaim.stages.desk import Desk

STEPS: dict[State, Callable[[Desk, Session], Awaitable[None]]] = {
    State.ACTIVE: running.step,
    State.IDLE: running.step,
    State.WARNED: running.step,
    State.HIBERNATING: hibernate.step,
    State.REQUEUING: requeue.step,
    State.HIBERNATED: hold.step,
    State.QUEUED: release.step,
    State.RESTORING: restoring.step,
    State.FAILED: running.failed,
}


async def step(desk: Desk, id: SessionId) -> bool:
    """Whether the state changed, so that another step may follow at once."""
    async with desk.lock(id):
        session = desk.sessions.get(id)
        if session is None:
            return False
        await STEPS[session.state](desk, session)
        after = desk.sessions.get(id)
        return after is not None and after.state is not session.state
