"""A job that ends by nobody's will while it is being hibernated: was the checkpoint committed?"""

from __future__ import annotations

from slurm_reclaim.model.lifecycle import State
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World


async def test_the_job_failed_right_after_the_commit(world: World, stand: Stand) -> None:
    """Its relay was killed, and Slurm says so before the agent could say that it is saved."""
    await stand.hibernate()
    agent = world.agents[world.jobs_by_id[7].node]
    world.obey(agent, stand.desk.orders.of_node(agent.node)[0])
    world.finish(7, "FAILED")
    await stand.until(State.HIBERNATED)
    await stand.restore()
    assert (await stand.until(State.ACTIVE)).checkpoint == 0


async def test_the_job_failed_right_after_the_commit_and_may_not_be_requeued(
    world: World, stand: Stand
) -> None:
    """Its owner has switched that off meanwhile."""
    await stand.hibernate()
    agent = world.agents[world.jobs_by_id[7].node]
    world.obey(agent, stand.desk.orders.of_node(agent.node)[0])
    world.finish(7, "FAILED")
    world.jobs_by_id[7].requeue = False
    await stand.until(State.HIBERNATED)


async def test_the_job_failed_before_the_commit(world: World, stand: Stand) -> None:
    await stand.hibernate()
    world.finish(7, "FAILED")
    await stand.until(State.ENDED)


async def test_the_owner_has_ended_it(world: World, stand: Stand) -> None:
    await stand.hibernate()
    agent = world.agents[world.jobs_by_id[7].node]
    world.obey(agent, stand.desk.orders.of_node(agent.node)[0])
    world.finish(7, "CANCELLED")
    await stand.until(State.ENDED)
