"""What Slurm does by itself: jobs end and are requeued, numbers come again, nodes are lost."""

from __future__ import annotations

import pytest

from slurm_reclaim.errors import Refused
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.stages import requests
from tests.unit.controller.stand import Stand, refused
from tests.unit.controller.world import World


@pytest.mark.parametrize("state", [State.ACTIVE, State.HIBERNATED])
async def test_a_job_that_ended_ends_the_session(world: World, stand: Stand, state: State) -> None:
    if state is State.HIBERNATED:
        await stand.hibernate()
        await stand.until(State.HIBERNATED)
    world.finish(7, "CANCELLED")
    ended = await stand.until(State.ENDED)
    assert "CANCELLED" in ended.reason


async def test_a_query_that_fails_ends_nothing(world: World, stand: Stand) -> None:
    world.silent = True
    world.jobs_by_id.clear()
    await stand.turns(5)
    assert stand.session().state is State.ACTIVE  # type: ignore[union-attr]
    assert stand.desk.view.problem
    world.silent = False
    assert (await stand.until(State.ENDED)).reason == "Slurm no longer knows the job"


async def test_a_job_number_used_again_is_another_job(world: World, stand: Stand) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    del world.jobs_by_id[7]
    world.images.clear()
    world.submit(7)
    await stand.turns(4)
    first, second = stand.journal.of_job(7)
    assert (first.state, second.state) == (State.ENDED, State.ACTIVE)


async def test_an_image_of_an_earlier_job_of_that_number_is_not_restored(
    world: World, stand: Stand
) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    del world.jobs_by_id[7]
    world.submit(7)
    await stand.turns(4)
    tree = world.agents["n1"].trees[7]
    assert (tree.living.value, tree.restored) == ("running", False)


async def test_a_requeue_without_checkpoint_starts_another_session(
    world: World, stand: Stand
) -> None:
    world.agents["n1"].trees.clear()
    job = world.jobs_by_id[7]
    job.state, job.restarts, job.node, job.submitted = "PENDING", 1, "", int(world.time)
    await stand.turns(3)
    first, second = stand.journal.of_job(7)
    assert (first.state, second.state, second.restarts) == (State.ENDED, State.ACTIVE, 1)


async def test_requeued_by_its_owner_before_the_commit(world: World, stand: Stand) -> None:
    """There is no image, which is said, and nothing is waited for: Slurm starts it from the top."""
    await stand.hibernate()
    world.agents["n1"].trees.clear()
    job = world.jobs_by_id[7]
    job.state, job.restarts, job.held, job.node = "SPECIAL_EXIT", 1, True, ""
    job.submitted = int(world.time)
    assert (await stand.until(State.HIBERNATED)).checkpoint == -1
    with pytest.raises(Refused, match="no checkpoint"):
        await stand.restore()
    job.state, job.held = "PENDING", False
    await stand.turns(4)
    first = stand.journal.of_job(7)[0]
    assert (first.state, first.reason) == (
        State.ENDED,
        "there was no checkpoint; the job starts over",
    )


async def test_a_slurmctld_that_forgot_the_release(world: World, stand: Stand) -> None:
    """It died before it saved its state, and went back to the held job; the processes are gone."""
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    await stand.restore()
    active = await stand.until(State.ACTIVE)
    job = world.jobs_by_id[7]
    world.agents[active.node].trees.pop(7)
    job.state, job.held, job.node = "SPECIAL_EXIT", True, ""
    again = await stand.until(State.HIBERNATED)
    assert again.checkpoint == 0
    await stand.restore()
    assert (await stand.until(State.ACTIVE)).restarts == job.restarts


async def test_a_lost_node_may_still_run_it(world: World, stand: Stand) -> None:
    """S3: the job goes back to its last checkpoint only when the cut-off node has spoken, or an
    operator for it."""
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    await stand.restore()
    active = await stand.until(State.ACTIVE)
    world.lose_node(active.node)
    await stand.turns(20)
    waiting = stand.session()
    assert waiting is not None
    assert (waiting.state, waiting.fence) == (State.QUEUED, active.node)
    assert 7 not in world.agents["n2"].trees
    assert world.jobs_by_id[7].excluded == "n[1-2]"
    # Should it be started there all the same, it is not restored.
    world.jobs_by_id[7].excluded = ""
    world.tick()
    assert world.agents["n2"].trees[7].living.value == "waiting"
    await stand.turns(3)
    assert world.agents["n2"].trees[7].living.value == "waiting"
    # The node is back, slurmd kills what it finds of the old run, the agent says so.
    world.agents[active.node].trees.clear()
    world.agents[active.node].up = True
    world.node_states[active.node] = frozenset({"idle"})
    restored = await stand.until(State.ACTIVE)
    assert (restored.node, restored.fence) == ("n2", "")


async def test_only_an_operator_says_that_a_lost_node_is_off(world: World, stand: Stand) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    await stand.restore()
    active = await stand.until(State.ACTIVE)
    world.lose_node(active.node)
    await stand.turns(3)
    world.jobs_by_id[7].held = True  # as Slurm does where every node is excluded
    await stand.until(State.HIBERNATED)
    error = await refused(requests.ask_restore(stand.desk, stand.alice, "7"))
    assert "n1 was lost and may still run" in error.message
    world.agents["n1"].trees.clear()
    await stand.restore(stand.olga)
    assert (await stand.until(State.ACTIVE)).node == "n2"


async def test_a_commit_right_before_the_node_was_lost(world: World, stand: Stand) -> None:
    """Nobody heard of it, but the store has it: the job must not start from scratch (S10)."""
    await stand.hibernate()
    world.obey(world.agents["n1"], stand.desk.orders.of_node("n1")[0])
    world.agents["n1"].trees.clear()
    world.agents["n1"].results.clear()
    world.lose_node("n1")
    await stand.turns(3)
    assert stand.session().state is State.QUEUED  # type: ignore[union-attr]
    world.agents["n1"].up = True
    world.node_states["n1"] = frozenset({"idle"})
    active = await stand.until(State.ACTIVE)
    assert (active.checkpoint, active.restarts) == (0, 1)
    assert world.history[-1].startswith("restored 7")


async def test_a_reservation_that_was_deleted_under_a_released_job(
    world: World, stand: Stand
) -> None:
    """Slurm holds it, in a state of its own (RESV_DEL_HOLD), until somebody lets it go."""
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    for agent in world.agents:
        world.node_states[agent] = frozenset({"down"})
    await stand.restore()
    job = world.jobs_by_id[7]
    job.state, job.held, job.reason = "RESV_DEL_HOLD", True, "Reservation r2 was deleted"
    session = await stand.until(State.HIBERNATED)
    assert "Reservation r2 was deleted" in session.reason
    for agent in world.agents:
        world.node_states[agent] = frozenset({"idle"})
    await stand.restore()
    await stand.until(State.ACTIVE)
