"""What is said, and of which node, where a session comes to grief that was asleep or idle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import Engine

from slurm_reclaim.model.checkpoint import GpuCard, GpuNeeds
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Outcome, Result, Verb
from tests.unit.controller.life import Life, config, report
from tests.unit.controller.simulated import NEEDS
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World


async def asleep(stand: Stand) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    await stand.turns(2)


@pytest.mark.parametrize(("node", "blamed"), [("n2", ("n2",)), ("", ())])
async def test_the_node_on_which_its_job_failed_is_blamed_and_not_the_one_it_slept_on(
    world: World, stand: Stand, node: str, blamed: tuple[str, ...]
) -> None:
    """Released, started and ended between two looks at Slurm."""
    await asleep(stand)
    job = world.jobs_by_id[7]
    job.state, job.node, job.held = "FAILED", node, False
    await stand.turns(3)
    again = await stand.until(State.HIBERNATED)
    assert again.bad_nodes == blamed
    assert "n1" not in again.reason
    assert again.reason.startswith(f"not restored on {node}: " if node else "not restored: ")
    assert "FAILED" in again.reason
    assert "n1" not in job.comment
    await stand.restore()
    assert (await stand.until(State.ACTIVE)).node == "n1"


async def test_a_notice_on_its_way_is_forgotten_with_the_warning(
    world: World, engine: Engine
) -> None:
    """Its owner paused the session while the answers were still out."""
    one = Life(world, engine, config())
    await one.start()
    one.node.deaf = True
    for _ in range(200):
        await one.stand.turn(20.0)
        session = one.stand.session()
        if session is not None and session.warned is not None and session.warned.asked:
            break
    assert one.state is State.IDLE
    assert one.stand.desk.tellings
    await one.stand.hibernate()
    one.node.deaf = False
    await one.stand.until(State.HIBERNATED)
    await one.stand.turns(2)
    assert not one.stand.desk.tellings


async def test_a_look_that_was_given_up_says_nothing_of_the_next_warning(
    world: World, engine: Engine
) -> None:
    """It hung for an hour, and comes back when the session is idle once more."""
    one = Life(world, engine, config())
    await one.start()
    one.node.looks = False
    await one.stand.until(State.IDLE, 100)
    await one.stand.turn()
    (order,) = one.stand.desk.orders.of_node("n1")
    late = Result("of-long-ago", order.session, 0, Verb.PREFLIGHT, Outcome.DONE, "")
    one.node.results[late.order] = late
    reply = report(one)
    session = one.stand.session()
    assert session is not None
    assert session.warned is not None
    assert not session.warned.cleared
    # It is not told again.
    assert late.order in reply.acknowledged
    one.node.looks = True
    await one.stand.until(State.WARNED, 20)


async def test_a_commit_that_only_a_report_tells_says_what_it_has_freed(
    world: World, stand: Stand
) -> None:
    card = GpuCard("GPU-1", "A100", 40 << 30, used=5 << 30)
    agent = world.agents["n1"]
    agent.needs = replace(NEEDS, gpu=GpuNeeds("575.1", (card,), (300,)))
    await stand.hibernate()
    world.obey(agent, stand.desk.orders.of_node("n1")[0])
    agent.results.clear()
    saved = await stand.until(State.HIBERNATED)
    assert saved.freed_gpu == 5 << 30
    assert "freed 5.0 GiB VRAM" in saved.reason
