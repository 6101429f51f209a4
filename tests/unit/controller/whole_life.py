"""A whole life, as an owner leads it who asks again until it happens; and what it ends in."""

from __future__ import annotations

from slurm_reclaim.errors import ReclaimError
from slurm_reclaim.model.lifecycle import RUNNING_STATES, State
from tests.unit.controller.stand import Stand

# Reading again and again is one point of interruption; after a write is before the next call.
READS = {"jobs", "detail"}
CHANGES = {"annotate", "requeue_held", "prepare_held", "release"}


async def live(stand: Stand) -> None:
    """An owner who asks again until it happens, like anyone whose command failed."""
    world = stand.world
    await stand.until(State.ACTIVE)
    await insist(stand, State.HIBERNATED)
    world.agents["n1"].restore_fails = "no"
    await insist(stand, State.ACTIVE)
    await stand.turns(2)


async def insist(stand: Stand, goal: State) -> None:
    for _ in range(40):
        session = stand.session()
        assert session is not None
        if session.state is goal:
            return
        try:
            if goal is State.HIBERNATED and session.state in RUNNING_STATES:
                await stand.hibernate()
            elif goal is State.ACTIVE and session.state is State.HIBERNATED:
                await stand.restore()
        except ReclaimError:
            pass
        await stand.turn()
    raise AssertionError(f"never {goal}: {stand.session()} {stand.world.history}")


def outcome(stand: Stand) -> tuple[object, ...]:
    session, world = stand.session(), stand.world
    assert session is not None
    job = world.jobs_by_id[7]
    living = [a.node for a in world.agents.values() if 7 in a.trees and a.trees[7].alive]
    return (
        session.state, session.node, living, job.state, job.comment, job.admin_comment,
        stand.journal.unsettled(),
    )  # fmt: skip
