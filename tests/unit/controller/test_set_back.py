"""A slurmctld that died before it had saved its state shows an earlier run of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import StartMode, StartQuestion
from slurm_reclaim.stages import start
from tests.unit.controller.simulated import ALICE, FIT, SimJob
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World


def forget(world: World, before: SimJob) -> None:
    """Slurm goes back to how it had the job; what runs on the node goes on."""
    world.jobs_by_id[7] = replace(before, node=world.jobs_by_id[7].node or before.node)


async def lived(stand: Stand, lives: int) -> None:
    for _ in range(lives):
        await stand.hibernate()
        await stand.until(State.HIBERNATED)
        await stand.restore()
        await stand.until(State.ACTIVE)
        await stand.turns(2)


@pytest.mark.parametrize("lives", [1, 3])
async def test_a_session_whose_restart_was_forgotten_goes_on(
    world: World, stand: Stand, lives: int
) -> None:
    await lived(stand, lives - 1)
    before = replace(world.jobs_by_id[7])
    await lived(stand, 1)
    forget(world, before)
    await stand.turns(3)
    session = stand.session()
    assert session is not None
    assert (session.state, session.restarts) == (State.ACTIVE, lives)
    assert stand.kinds().count("slurm-set-back") == 1
    # and its checkpoints are numbered on, so that the newest is the one that is restored
    await lived(stand, 2)
    session = stand.session()
    assert session is not None
    assert (session.restarts, session.checkpoint) == (lives + 2, lives + 1)
    assert world.jobs_by_id[7].restarts == lives + 1
    assert "started-from-scratch" not in stand.kinds()


async def test_a_requeue_that_was_forgotten_is_asked_for_again(world: World, stand: Stand) -> None:
    before = replace(world.jobs_by_id[7])
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    forget(world, before)
    await stand.turns(8)
    await stand.until(State.HIBERNATED)
    assert world.jobs_by_id[7].state == "SPECIAL_EXIT"
    await stand.restore()
    await stand.until(State.ACTIVE)


async def test_a_start_that_slurm_has_forgotten_is_never_fresh(world: World, stand: Stand) -> None:
    before = replace(world.jobs_by_id[7])
    await lived(stand, 1)
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    forget(world, before)
    session = stand.session()
    assert session is not None
    question = StartQuestion("n1", 7, ALICE, FIT, (f"{session.id}/0", f"{session.id}/1"))
    answer = await start.answer(stand.desk, question)
    assert answer.mode is not StartMode.FRESH
    if answer.mode is StartMode.RESTORE:
        assert (answer.checkpoint, answer.restarts) == (1, 2)


async def test_what_a_held_job_was_given_is_given_again(world: World, stand: Stand) -> None:
    """Slurm has forgotten the release, and with it that the job need not wait two minutes."""
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    before = replace(world.jobs_by_id[7])
    await stand.turn()
    await stand.restore()
    active = await stand.until(State.ACTIVE)
    world.agents[active.node].trees.clear()
    world.jobs_by_id[7] = replace(before, begin=world.time + 3600)
    await stand.until(State.HIBERNATED)
    await stand.restore()
    assert world.jobs_by_id[7].begin <= world.time
    await stand.until(State.ACTIVE, 3)


async def test_a_start_that_was_forgotten_during_the_restore(world: World, stand: Stand) -> None:
    """The job waits, held, in the run that was being restored; nobody would ever end that wait."""
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    before = replace(world.jobs_by_id[7])
    await stand.turn()
    await stand.restore()
    for agent in world.agents.values():
        agent.up = False
    await stand.until(State.RESTORING)
    for agent in world.agents.values():
        agent.trees.clear()
    world.jobs_by_id[7] = before
    await stand.turns(2)
    session = stand.session()
    assert session is not None
    assert session.state is State.RESTORING, "while its node is silent it may run there (S4)"
    for agent in world.agents.values():
        agent.up = True
    session = await stand.until(State.HIBERNATED, 4)
    assert "before the job started" in session.reason
    assert session.bad_nodes == ()
    await stand.restore()
    await stand.until(State.ACTIVE)
    assert "started-from-scratch" not in stand.kinds()


async def test_another_job_of_the_number_is_another_job(world: World, stand: Stand) -> None:
    await lived(stand, 3)
    world.agents["n1"].trees.clear()
    del world.jobs_by_id[7]
    world.submit(7)
    await stand.turns(3)
    states = {s.id.submitted: s.state for s in [*stand.journal.sessions(), *stand.journal.ended()]}
    assert sorted(states.values()) == [State.ACTIVE, State.ENDED]


async def test_a_start_that_was_forgotten_while_it_was_requeued(world: World, stand: Stand) -> None:
    """Committed, and Slurm shows the job as it waited before it ran: that is all a requeue gives.
    The count goes on, so that the next life's checkpoint is another one."""
    await lived(stand, 1)
    before = replace(world.jobs_by_id[7], state="SPECIAL_EXIT", held=True, node="")
    await stand.hibernate()
    world.silent = True
    await stand.turns(2)
    world.silent = False
    for agent in world.agents.values():
        agent.trees.clear()
    world.jobs_by_id[7] = before
    session = await stand.until(State.HIBERNATED, 6)
    assert (session.checkpoint, session.restarts) == (1, 2)
    await stand.restore()
    await stand.until(State.ACTIVE)
    await lived(stand, 1)
    session = stand.session()
    assert session is not None
    assert session.checkpoint == 2


async def test_a_start_that_was_forgotten_while_it_was_restored_in_place(
    world: World, stand: Stand
) -> None:
    await lived(stand, 1)
    before = replace(world.jobs_by_id[7], state="SPECIAL_EXIT", held=True, node="")
    world.refuse_requeue = "sim: not allowed"
    world.agents["n1"].restore_fails = world.agents["n2"].restore_fails = "sim: no"
    await stand.hibernate()
    await stand.until(State.RESTORING)
    for agent in world.agents.values():
        agent.trees.clear()
        agent.restore_fails = ""
    world.jobs_by_id[7], world.refuse_requeue = before, ""
    session = await stand.until(State.HIBERNATED, 6)
    assert (session.checkpoint, session.restarts) == (1, 2)
    await stand.restore()
    await stand.until(State.ACTIVE)
    assert world.jobs_by_id[7].state == "RUNNING"


async def test_a_job_that_slurm_has_started_a_second_time(world: World, stand: Stand) -> None:
    """Back to before the start, and started again before anybody looked."""
    await lived(stand, 1)
    await stand.turns(2)
    job = world.jobs_by_id[7]
    world.agents[job.node].trees.clear()
    world.jobs_by_id[7] = replace(job, state="PENDING", node="")
    world.tick(1.0)
    assert world.jobs_by_id[7].state == "RUNNING"
    await stand.turns(6)
    session = await stand.until(State.ACTIVE)
    assert session.restarts == 2
    assert world.agents[world.jobs_by_id[7].node].trees
    assert "started-from-scratch" not in stand.kinds()
