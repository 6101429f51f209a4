"""Slurm is asked for its nodes once a minute, and at once where one is unknown or may be gone."""

from __future__ import annotations

from dataclasses import replace

from slurm_reclaim.model.lifecycle import State
from tests.unit.controller.simulated import FIT, Agent
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World


async def test_nodes_are_asked_for_once_a_minute(world: World, stand: Stand) -> None:
    world.nodes_asked = 0
    world.calls.clear()
    await stand.turns(12)
    assert world.nodes_asked == 2
    assert world.calls.count("jobs") == 24  # a turn is two cycles


async def test_a_new_node_is_known_with_its_agents_first_report(world: World, stand: Stand) -> None:
    await stand.turn(61)
    world.nodes_asked = 0
    world.node_states["n3"] = frozenset({"idle"})
    world.agents["n3"] = Agent("n3")
    await stand.turn(1)
    assert world.nodes_asked == 1
    assert "n3" in stand.desk.view.nodes


async def test_a_host_that_slurm_does_not_know_is_asked_about_once(
    world: World, stand: Stand
) -> None:
    await stand.turn(61)
    world.nodes_asked = 0
    world.agents["elsewhere"] = Agent("elsewhere")
    await stand.turns(5, 1)
    assert world.nodes_asked == 1


async def test_a_clock_that_was_put_back_asks(world: World, stand: Stand) -> None:
    await stand.turn(61)
    world.nodes_asked = 0
    world.time -= 7200
    await stand.turn(1)
    assert world.nodes_asked == 1


async def test_a_node_that_slurm_gave_up_is_not_named_to_it_again(
    world: World, stand: Stand
) -> None:
    world.node_states["n9"] = frozenset({"idle"})
    await stand.turn(61)
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    assert world.jobs_by_id[7].excluded == "n9"  # no agent there
    await stand.turn(61)
    del world.node_states["n9"]
    world.agents["n1"].facts = replace(FIT, plugin_seen=False)
    await stand.turns(2, 1)
    assert "hold-refused" in stand.kinds()
    assert world.jobs_by_id[7].excluded == "n1"
