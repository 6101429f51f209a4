"""Restores that fail, in place or on another node, or of which nobody hears."""

from __future__ import annotations

import asyncio

import pytest

from slurm_reclaim.model.lifecycle import Fact, State
from slurm_reclaim.model.order import StartMode
from slurm_reclaim.stages import start
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World


async def test_a_refused_requeue_restores_in_place(world: World, stand: Stand) -> None:
    world.refuse_requeue = "Requested operation is presently disabled"
    await stand.hibernate()
    await stand.turn()
    active = await stand.until(State.ACTIVE)
    assert active.restarts == 0
    assert world.agents["n1"].trees[7].restored
    assert stand.kinds()[-2:] == ["requeue-refused", "restore-succeeded"]
    assert "presently disabled" in [e.reason for e in stand.journal.events()][-2]
    await stand.turns(2)
    assert world.jobs_by_id[7].comment == "my notebook"
    assert not stand.journal.unsettled()


async def test_a_failed_restore_in_place_is_held_again_and_tried_elsewhere(
    world: World, stand: Stand
) -> None:
    """A GPU that takes its state back on no condition may be this card alone."""
    world.refuse_requeue = "not now"
    await stand.hibernate()
    world.agents["n1"].restore_fails = "its GPU state did not come back"
    await stand.until(State.RESTORING)
    world.refuse_requeue = ""
    again = await stand.until(State.HIBERNATED)
    assert again.bad_nodes == ("n1",)
    assert "its GPU state did not come back" in again.reason
    assert "restore-in-place-failed" in stand.kinds()
    await stand.restore()
    assert (await stand.until(State.ACTIVE)).node == "n2"


async def test_in_place_nor_elsewhere_is_for_an_admin(world: World, stand: Stand) -> None:
    world.refuse_requeue = "not now"
    await stand.hibernate()
    world.agents["n1"].restore_fails = "its GPU state did not come back"
    failed = await stand.until(State.FAILED)
    assert "its GPU state did not come back" in failed.reason
    assert "not now" in failed.reason
    assert world.images


async def test_a_failed_restore_is_held_again_and_tried_elsewhere(
    world: World, stand: Stand
) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    world.agents["n1"].restore_fails = "files changed: /usr/bin/python3"
    await stand.restore()
    await stand.until(State.RESTORING)
    again = await stand.until(State.HIBERNATED)
    assert again.bad_nodes == ("n1",)
    assert again.reason == "not restored on n1: files changed: /usr/bin/python3"
    assert world.jobs_by_id[7].comment.startswith("not restored: on n1: files changed")
    await stand.turn()
    assert world.jobs_by_id[7].excluded == "n1"
    await stand.restore()
    assert (await stand.until(State.ACTIVE)).node == "n2"


async def test_where_it_failed_everywhere_it_may_be_tried_again(world: World, stand: Stand) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    for agent in world.agents.values():
        agent.restore_fails = "tar:\n no room"
    for bad in (("n1",), ("n1", "n2"), ("n1",)):
        await stand.restore()
        await stand.until(State.RESTORING)
        again = await stand.until(State.HIBERNATED)
        assert again.bad_nodes == bad
        assert again.reason == f"not restored on {bad[-1]}: tar: no room"
        await stand.turn()
    for agent in world.agents.values():
        agent.restore_fails = ""
    await stand.restore()
    assert (await stand.until(State.ACTIVE)).bad_nodes == ()


async def test_a_silent_agent_where_it_lands_is_waited_for_and_then_left(
    world: World, stand: Stand
) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    await stand.restore()
    world.agents["n1"].up = False
    await stand.until(State.RESTORING)
    await stand.turns(5)
    assert stand.session().state is State.RESTORING  # type: ignore[union-attr]
    again = await stand.until(State.HIBERNATED)
    assert "was not heard of for 120 s" in again.reason
    await stand.restore()
    assert (await stand.until(State.ACTIVE)).node == "n2"


async def test_silence_after_the_order_to_restore_is_unknown(world: World, stand: Stand) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    await stand.restore()
    agent = world.agents["n1"]
    agent.up = False
    await stand.until(State.RESTORING)
    agent.up = True
    await stand.agent_turn(agent)
    agent.up = False  # it restores, and its report is lost
    stand.desk.view.agents.pop("n1")
    await stand.turns(40)
    assert world.jobs_by_id[7].state == "RUNNING"


LAUNCH = "launch failed requeued held"


@pytest.mark.parametrize(
    ("slurm", "told"),
    [
        ("job requeued in held state", "n1 held the job again by itself"),
        (LAUNCH, f"not restored on n1: {LAUNCH} (see slurmd's log there)"),
    ],
)
async def test_it_is_held_again_by_the_node_or_by_slurm(
    world: World, stand: Stand, slurm: str, told: str
) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    world.agents["n1"].up = world.agents["n2"].up = False
    await world.release("7")
    await stand.until(State.RESTORING)
    await world.requeue_held("7", special_exit=True)
    world.jobs_by_id[7].reason = slurm
    again = await stand.until(State.HIBERNATED)
    assert (again.reason, again.bad_nodes) == (told, ("n1",))


async def test_a_start_that_is_overtaken_while_its_turn_comes(world: World, stand: Stand) -> None:
    """What Slurm said of the job is older than what was done about it meanwhile."""
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    world.agents["n2"].up = False
    await stand.restore()
    world.tick()
    job, agent = world.jobs_by_id[7], world.agents["n1"]
    assert (job.state, job.node, job.restarts) == ("RUNNING", "n1", 1)
    session = stand.session()
    assert session is not None
    async with stand.desk.lock(session.id):
        asking = asyncio.create_task(
            start.answer(stand.desk, world.question(agent, agent.trees[7]))
        )
        for _ in range(10):
            await asyncio.sleep(0)
        stand.desk.apply(session.id, Fact.JOB_STARTED, "as a step sees it", node="n1", restarts=1)
        stand.desk.apply(session.id, Fact.RESTORE_FAILED, "held again", restarts=2)
    answer = await asking
    assert answer.mode is StartMode.WAIT
    after = stand.session()
    assert after is not None
    assert (after.state, after.restarts) == (State.HIBERNATED, 2)
