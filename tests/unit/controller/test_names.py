"""Which session an agent's report speaks of, and the name that it is given for good."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.stages import observe
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World


async def test_a_node_whose_clock_is_ahead_is_told_the_name(world: World, stand: Stand) -> None:
    """Its job did not begin after Slurm's answer, its clock only says so."""
    node = world.agents["n1"]
    node.trees[7].session = ""
    node.trees[7].started = world.time + 3600.0 - 60.0
    report = world.report(node)
    told = observe.take_report(stand.desk, replace(report, at=report.at + 3600.0))
    assert list(told.names) == ["7"]


@pytest.mark.parametrize("seen", [False, True])
async def test_a_job_number_that_is_used_again_by_its_owner(
    world: World, stand: Stand, seen: bool
) -> None:
    """After a loss of Slurm's state. The new job reports before we know that the old one ended:
    `seen` tells whether Slurm's row is the new job's by then."""
    old = stand.session()
    assert old is not None
    world.finish(7)
    world.tick()
    world.submit(7)
    world.tick()
    node = next(agent for agent in world.agents.values() if 7 in agent.trees)
    node.trees[7].started = world.time
    if seen:
        await observe.ask_slurm(stand.desk)
    await stand.agent_turn(node)
    assert node.trees[7].session == ""
    await stand.turns(2)
    new = await stand.until(State.ACTIVE)
    assert new.id != old.id
    assert node.trees[7].session == str(new.id)
