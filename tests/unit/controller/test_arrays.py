"""Tasks of job arrays. The last task that an array starts has the number of the array, and by that
number Slurm changes every task: what is done to one session would be done to all of them (S1)."""

from __future__ import annotations

from sqlalchemy import Engine

from slurm_reclaim.model.lifecycle import State
from tests.unit.controller.stand import Stand
from tests.unit.controller.test_retention import DAY, SLEEPS, under
from tests.unit.controller.world import World

ARRAY, LAST = 20, 2


async def asleep(world: World, engine: Engine) -> Stand:
    """Task 20_2, whose number is 20, hibernated; 20_1 runs on."""
    stand = Stand(world, engine, config=under(**SLEEPS))
    world.submit(ARRAY, array=(ARRAY, LAST))
    world.submit(21, array=(ARRAY, 1))
    await stand.turns(3)
    await stand.hibernate(job=f"{ARRAY}_{LAST}")
    await stand.turns(6)
    assert world.jobs_by_id[ARRAY].state == "SPECIAL_EXIT"
    return stand


def states(stand: Stand) -> dict[int, State]:
    return {id.job_id: session.state for id, session in stand.desk.sessions.items()}


async def test_the_last_task_alone_is_requeued_and_released(world: World, engine: Engine) -> None:
    stand = await asleep(world, engine)
    assert states(stand) == {ARRAY: State.HIBERNATED, 21: State.ACTIVE}
    await stand.restore(job=f"{ARRAY}_{LAST}")
    await stand.turns(6)
    assert states(stand) == {ARRAY: State.ACTIVE, 21: State.ACTIVE}
    assert world.jobs_by_id[21].restarts == 0
    assert world.agents[world.jobs_by_id[ARRAY].node].trees[ARRAY].restored


async def test_a_node_that_was_booted_anew(world: World, engine: Engine) -> None:
    stand = await asleep(world, engine)
    await stand.restore(job=f"{ARRAY}_{LAST}")
    await stand.turns(6)
    world.agents["n2"].trees[21] = world.agents["n1"].trees.pop(21)
    world.jobs_by_id[21].node = "n2"
    world.boot_unseen("n1")
    await stand.turns(12)
    assert states(stand)[ARRAY] is State.ACTIVE
    assert world.jobs_by_id[ARRAY].restarts == 2
    assert world.jobs_by_id[21].restarts == 0


async def test_the_last_task_alone_is_cancelled_by_age(world: World, engine: Engine) -> None:
    stand = await asleep(world, engine)
    world.time += 25 * DAY
    await stand.look_through()
    world.time += 20 * DAY
    await stand.turn()
    await stand.look_through()
    assert world.jobs_by_id[ARRAY].state == "CANCELLED"
    assert world.jobs_by_id[21].state == "RUNNING"
