"""A node that was booted anew before Slurm has noticed: what its agent says of it, and what it does
not say."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from slurm_reclaim.errors import AgentUnavailable
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Living, StartAnswer
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages import observe, release, requests
from tests.unit.controller.simulated import Agent, Tree
from tests.unit.controller.stand import Stand, refused
from tests.unit.controller.world import World


async def saved_once(stand: Stand) -> Session:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    await stand.restore()
    await stand.until(State.ACTIVE)
    await stand.turn()
    return now(stand)


def now(stand: Stand) -> Session:
    session = stand.session()
    assert session is not None
    return session


def requeues(world: World) -> int:
    return world.calls.count("requeue")


async def test_it_goes_back_to_its_checkpoint_at_once(world: World, stand: Stand) -> None:
    session = await saved_once(stand)
    world.boot_unseen(session.node)
    assert world.jobs_by_id[7].state == "RUNNING"
    await stand.until(State.QUEUED, 6)
    session = await stand.until(State.ACTIVE)
    assert (session.checkpoint, session.restarts, session.fence) == (0, 2, "")
    told = next(e for e in stand.journal.events(limit=1000) if e.kind == "node-rebooted")
    assert "was booted anew" in told.reason
    assert requeues(world) == 1
    assert [s for *_, s, _ in stand.journal.unsettled() if s == "requeue"] == []


async def test_also_while_it_is_being_restored(
    world: World, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)

    def at_work(agent: Agent, tree: Tree, answer: StartAnswer) -> None:
        tree.session, tree.restarts, tree.living = answer.session, answer.restarts, Living.RESTORING

    with monkeypatch.context() as slowly:
        slowly.setattr(world, "restore", at_work)
        await stand.restore()
        session = await stand.until(State.RESTORING)
        await stand.turns(2)
    world.boot_unseen(session.node)
    await stand.until(State.QUEUED, 6)
    session = await stand.until(State.ACTIVE)
    assert (session.restarts, session.bad_nodes) == (2, ())


async def test_also_before_its_agent_has_shown_it(
    world: World, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power fails right after the agent was told to restore it."""
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    await stand.restore()

    def fails(agent: Agent, tree: Tree, answer: StartAnswer) -> None:
        agent.trees.clear()
        world.boot_unseen(agent.node)

    with monkeypatch.context() as power:
        power.setattr(world, "restore", fails)
        await stand.until(State.RESTORING)
    await stand.until(State.QUEUED, 6)
    await stand.until(State.ACTIVE)
    assert requeues(world) == 1


async def test_a_restarted_controller_still_knows_the_boot(world: World, stand: Stand) -> None:
    session = await saved_once(stand)
    await stand.reboot()
    world.boot_unseen(session.node)
    await stand.until(State.QUEUED, 6)


async def test_without_a_checkpoint_it_is_left_to_slurm(world: World, stand: Stand) -> None:
    """S1: not even a job in which nothing runs any more."""
    world.boot_unseen(now(stand).node)
    await stand.turns(6)
    assert requeues(world) == 0
    assert now(stand).state is State.ACTIVE
    assert stand.kinds().count("node-rebooted") == 1
    error = await refused(requests.ask_hibernate(stand.desk, stand.alice, "7", "asked"))
    assert "was booted anew" in error.message


@pytest.mark.parametrize("what", ["the same boot", "another agent of the same name", "young"])
async def test_a_report_that_lacks_it_is_not_enough(world: World, stand: Stand, what: str) -> None:
    """S4."""
    session = await saved_once(stand)
    agent = world.agents[session.node]
    trees = dict(agent.trees)
    if what == "the same boot":
        agent.trees.clear()  # as right after its own restart
        await stand.turns(6)
    elif what == "young":
        world.boot_unseen(session.node)
        await stand.turn(1.0)
        await stand.turn(1.0)
    for _ in range(6 if what.startswith("another") else 0):
        other = replace(world.report(agent), boot_id="another", sessions=())
        observe.take_report(stand.desk, other)
        await stand.controller.cycle()
        await stand.turn(30.0)
        assert stand.desk.view.agents[session.node].report.boot_id == "boot-1"
    assert requeues(world) == 0
    assert now(stand).state is State.ACTIVE
    agent.trees.update(trees)


async def test_one_that_slurm_has_started_again_there_is_let_alone(
    world: World, stand: Stand
) -> None:
    """A slurmctld that had forgotten the start gives the new one the same number."""
    session = await saved_once(stand)
    world.boot_unseen(session.node)
    world.jobs_by_id[7].started = world.time + 5
    await stand.turns(6)
    assert requeues(world) == 0


async def test_where_slurm_refuses_it_is_left_to_slurm(world: World, stand: Stand) -> None:
    session = await saved_once(stand)
    world.refuse_requeue = "sim: not allowed"
    world.boot_unseen(session.node)
    await stand.turns(6)
    assert now(stand).state is State.ACTIVE
    assert stand.kinds().count("requeue-refused") == 1
    world.refuse_requeue = ""
    await stand.until(State.QUEUED, 3)


async def test_a_restore_waits_for_an_agent_that_was_there_a_moment_ago(
    world: World, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "FIRST_REPORTS", 5.0)
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    for agent in world.agents.values():
        agent.up = False
    await stand.turns(1, 100.0)
    asked = asyncio.ensure_future(requests.ask_restore(stand.desk, stand.alice, "7"))
    await asyncio.sleep(0.2)
    assert not asked.done()
    for agent in world.agents.values():
        agent.up = True
    await stand.turn()
    assert (await asked).state is State.QUEUED


async def test_nobody_waits_for_an_agent_that_is_away_for_long(
    world: World, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "FIRST_REPORTS", 60.0)
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    for agent in world.agents.values():
        agent.up = False
    await stand.turns(1, release.LATELY + 10)
    asking = requests.ask_restore(stand.desk, stand.alice, "7")
    error = await asyncio.wait_for(refused(asking), 5.0)
    assert isinstance(error, AgentUnavailable)
