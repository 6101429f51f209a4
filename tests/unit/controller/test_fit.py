"""What stands in the way is known early; and files that their owner says may have changed."""

from __future__ import annotations

import asyncio

import pytest

from slurm_reclaim.errors import AgentUnavailable, BadRequest
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.stages import release, requests
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World

FILE = "/home/alice/data"


async def test_an_accepted_file_reaches_the_node_and_clears_the_nodes(
    world: World, stand: Stand
) -> None:
    for agent in world.agents.values():
        agent.changed_file = FILE
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    await stand.restore()
    failed = await stand.until(State.HIBERNATED)
    assert f"{FILE} changed" in failed.reason
    assert failed.bad_nodes == ("n1",)
    asked = await requests.ask_restore(stand.desk, stand.alice, "7", (FILE,))
    assert (asked.accepted, asked.bad_nodes) == ((FILE,), ())
    back = await stand.until(State.ACTIVE)
    # said of this sleep, not of the next
    assert back.accepted == ()


async def test_each_request_says_anew_what_may_have_changed(world: World, stand: Stand) -> None:
    world.agents["n1"].changed_file = world.agents["n2"].changed_file = FILE
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    await requests.ask_restore(stand.desk, stand.alice, "7", ("/other",))
    await stand.until(State.HIBERNATED)
    asked = await requests.ask_restore(stand.desk, stand.alice, "7")
    assert asked.accepted == ()
    # while it waits for a node, it can still be said
    asked = await requests.ask_restore(stand.desk, stand.alice, "7", (FILE,))
    assert asked.state is State.QUEUED
    assert asked.accepted == (FILE,)
    await stand.until(State.ACTIVE)


@pytest.mark.parametrize("accept", [("data",), ("",), ("/x",) * 1001], ids=["relative", "", "many"])
async def test_paths_that_are_none(stand: Stand, accept: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest):
        await requests.ask_restore(stand.desk, stand.alice, "7", accept)


async def test_a_job_that_wants_one_node_is_not_kept_from_it_by_a_failed_restore(
    world: World, stand: Stand
) -> None:
    """Slurm knows of `-w n1`; by us alone n2 would do. Nobody else could ever let it go on."""
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    world.agents["n1"].restore_fails = "the agent was restarted during the restore"
    await stand.restore()
    await stand.until(State.RESTORING)
    assert (await stand.until(State.HIBERNATED)).bad_nodes == ("n1",)
    world.agents["n1"].restore_fails = ""
    await stand.turn()
    job = world.jobs_by_id[7]
    await stand.restore()
    assert job.excluded == "n1"
    job.held, job.reason, job.begin = True, "BadConstraints", world.time + 1e6
    again = await stand.until(State.HIBERNATED)
    assert again.reason.endswith(
        "a restore of this checkpoint failed there; it is tried there once more"
    )
    await stand.turn()
    assert job.excluded == ""
    job.held, job.begin = False, 0.0  # by Slurm
    assert (await stand.until(State.ACTIVE)).node == "n1"


async def test_a_job_of_several_nodes_says_so_early(world: World, stand: Stand) -> None:
    world.jobs_by_id[7].node_count = 2
    world.agents["n1"].looked = world.time
    await stand.turns(2)
    assert stand.session().blockers == ("multi-node: the job runs on 2 nodes",)  # type: ignore[union-attr]


async def test_blockers_are_known_long_before_a_warning(world: World, stand: Stand) -> None:
    agent = world.agents["n1"]
    agent.blockers = (Blocker("traced", "python (310) is traced", "detach"),)
    await stand.turn()
    assert stand.session().blockers == ()  # type: ignore[union-attr]
    agent.looked = world.time
    await stand.turns(3)
    assert stand.session().blockers == ("traced: python (310) is traced",)  # type: ignore[union-attr]
    (told,) = [e for e in stand.journal.events() if e.kind == "not-hibernatable"]
    assert told.details == {"blockers": ["traced"], "hints": ["detach"]}
    agent.blockers = ()
    await stand.turn()
    assert stand.session().blockers == ()  # type: ignore[union-attr]
    kinds = [event.kind for event in stand.journal.events(job_id=7)]
    assert kinds.count("not-hibernatable") == kinds.count("hibernatable") == 1


async def test_a_controller_that_has_just_started_waits_for_reports(
    world: World, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has heard of no node yet, which is no answer to an owner."""
    monkeypatch.setattr(release, "FIRST_REPORTS", 5.0)
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    stand._boot()
    stand.desk.view.started = world.now()
    await stand.controller.cycle()
    asked = asyncio.ensure_future(stand.restore())
    await asyncio.sleep(0.05)
    assert not asked.done()
    await stand.turn()
    assert (await asked).state is State.QUEUED


async def test_an_older_one_says_that_nobody_answers(world: World, stand: Stand) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    stand._boot()
    await stand.controller.cycle()
    with pytest.raises(AgentUnavailable, match="not heard of"):
        await stand.restore()
