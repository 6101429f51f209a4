"""What users may ask, and what they are told."""

from __future__ import annotations

import pytest

from slurm_reclaim.errors import (
    AgentUnavailable,
    BadRequest,
    NotManaged,
    NotPermitted,
    NotReclaimable,
    Refused,
    RequeueFailed,
    SchedulerUnavailable,
    WrongState,
)
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.stages import requests
from tests.unit.controller.simulated import BOB
from tests.unit.controller.stand import Stand, refused
from tests.unit.controller.world import World


async def test_owners_see_their_own_and_operators_all(world: World, stand: Stand) -> None:
    world.submit(8, uid=BOB)
    await stand.turns(2)
    desk = stand.desk

    async def seen(who: object) -> list[int]:
        return [s.id.job_id for s in await requests.sessions(desk, who)]  # type: ignore[arg-type]

    assert await seen(stand.alice) == [7]
    assert await seen(stand.bob) == [8]
    assert await seen(stand.olga) == [7, 8]
    assert await seen(stand.root) == [7, 8]
    mine = await requests.events(desk, stand.bob, "", 0, 100)
    assert {event.job_id for event in mine} == {8}
    world.silent = True
    assert await seen(stand.olga) == []
    assert await seen(stand.alice) == [7]


async def test_strangers_are_refused_and_nothing_changes(world: World, stand: Stand) -> None:
    desk = stand.desk
    for asking in (
        requests.session(desk, stand.bob, "7"),
        requests.ask_hibernate(desk, stand.bob, "7", ""),
        requests.ask_restore(desk, stand.bob, "7"),
        requests.events(desk, stand.bob, "7", 0, 10),
    ):
        assert isinstance(await refused(asking), NotPermitted)
    assert stand.kinds() == ["adopted"]


async def test_an_operator_may_act_for_the_owner(world: World, stand: Stand) -> None:
    await stand.hibernate(stand.olga)
    await stand.until(State.HIBERNATED)
    await stand.restore(stand.root)
    assert "restore asked by root" in [e.reason for e in stand.journal.events()]


async def test_unknown_jobs(world: World, stand: Stand) -> None:
    world.submit(9, uid=BOB, held=True)
    asked = [("9999", NotManaged), ("9", NotPermitted), ("7.batch", BadRequest)]
    for job, kind in asked:
        error = await refused(requests.ask_hibernate(stand.desk, stand.alice, job, ""))
        assert type(error) is kind, error


@pytest.mark.parametrize(
    ("change", "kind", "word"),
    [
        ({"held": True}, WrongState, "PENDING"),
        ({"node_count": 2}, NotReclaimable, "2 nodes"),
        ({"het": True}, NotReclaimable, "heterogeneous"),
        ({"batch": False}, NotReclaimable, "salloc"),
        ({"requeue": False}, NotReclaimable, "--no-requeue"),
        ({}, NotManaged, "not managed"),
    ],
)
async def test_a_job_without_session_says_why(
    world: World, stand: Stand, change: dict[str, object], kind: type, word: str
) -> None:
    world.submit(9, **change)
    for agent in world.agents.values():
        agent.up = False
    await stand.turn()
    error = await refused(requests.ask_hibernate(stand.desk, stand.alice, "9", ""))
    assert type(error) is kind
    assert word in error.message


@pytest.mark.parametrize("change", ["node_count", "het", "batch", "requeue"])
async def test_a_session_of_a_kind_that_can_not_be_requeued(
    world: World, stand: Stand, change: str
) -> None:
    value = {"node_count": 2, "het": True, "batch": False, "requeue": False}[change]
    setattr(world.jobs_by_id[7], change, value)
    error = await refused(requests.ask_hibernate(stand.desk, stand.alice, "7", ""))
    assert type(error) is NotReclaimable
    assert error.hint
    assert stand.session().state is State.ACTIVE  # type: ignore[union-attr]


async def test_a_reason_is_a_line_that_can_be_shown(world: World, stand: Stand) -> None:
    """It stands in everybody's lists, in the order and in the journal."""
    reason = "a\x1b[2J\x00b\nc\u202e" + "x" * 60_000
    asked = await requests.ask_hibernate(stand.desk, stand.alice, "7", reason)
    assert asked.reason.startswith("a?[2J?b c?xxx")
    assert len(asked.reason) == requests.LONGEST_REASON
    assert await requests.set_brake(stand.desk, stand.olga, reason) == (
        f"{asked.reason} (by {stand.olga})"
    )


async def test_a_suspended_session_is_not_saved(world: World, stand: Stand) -> None:
    """It would come back stopped, in a job that runs to Slurm."""
    world.jobs_by_id[7].state = "SUSPENDED"
    error = await refused(requests.ask_hibernate(stand.desk, stand.alice, "7", ""))
    assert type(error) is WrongState
    assert "is suspended" in error.message
    assert stand.session().state is State.ACTIVE  # type: ignore[union-attr]
    assert not stand.journal.unsettled()


async def test_a_task_of_what_is_no_array(world: World, stand: Stand) -> None:
    world.submit(9, held=True)
    error = await refused(requests.session(stand.desk, stand.alice, "9_2"))
    assert type(error) is BadRequest
    assert (error.message, error.hint) == ("job 9 is no job array", "use 9")


async def test_what_runs_needs_no_restore(world: World, stand: Stand) -> None:
    error = await refused(requests.ask_restore(stand.desk, stand.alice, "7"))
    assert type(error) is WrongState
    assert error.hint == "it runs on n1: there is nothing to restore"


async def test_twice_is_told(world: World, stand: Stand) -> None:
    await stand.hibernate()
    error = await refused(requests.ask_hibernate(stand.desk, stand.alice, "7", ""))
    assert type(error) is WrongState
    await stand.until(State.HIBERNATED)
    error = await refused(requests.ask_hibernate(stand.desk, stand.alice, "7", ""))
    assert "reclaim restore 7" in error.hint
    first = await stand.restore()
    again = await requests.ask_restore(stand.desk, stand.alice, "7")
    assert first.state is again.state is State.QUEUED


async def test_restore_of_what_runs_is_told(world: World, stand: Stand) -> None:
    error = await refused(requests.ask_restore(stand.desk, stand.alice, "7"))
    assert type(error) is WrongState
    assert "it is ACTIVE" in error.message


async def test_without_agent_nothing_is_ordered(world: World, stand: Stand) -> None:
    world.agents["n1"].up = False
    await stand.turns(8)
    error = await refused(requests.ask_hibernate(stand.desk, stand.alice, "7", ""))
    assert type(error) is AgentUnavailable


async def test_without_slurm_nothing_is_ordered(world: World, stand: Stand) -> None:
    world.silent = True
    error = await refused(requests.ask_hibernate(stand.desk, stand.alice, "7", ""))
    assert type(error) is SchedulerUnavailable
    assert stand.session().state is State.ACTIVE  # type: ignore[union-attr]


async def test_an_operators_hold_wins(world: World, stand: Stand) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    world.jobs_by_id[7].admin_hold = True
    error = await refused(requests.ask_restore(stand.desk, stand.alice, "7"))
    assert type(error) is NotPermitted
    assert "held by an operator" in error.message
    assert (await stand.restore(stand.olga)).state is State.QUEUED


async def test_no_node_that_fits_is_said_with_the_requirement(world: World, stand: Stand) -> None:
    from dataclasses import replace

    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    for agent in world.agents.values():
        agent.facts = replace(agent.facts, cpu_flags="sse2")
    await stand.turn()
    error = await refused(requests.ask_restore(stand.desk, stand.alice, "7"))
    assert type(error) is Refused
    assert "n1: its CPU lacks avx2; n2: its CPU" in error.message
    assert world.jobs_by_id[7].held
    assert world.jobs_by_id[7].excluded == "n[1-2]"


async def test_a_refused_release_is_told_and_left(world: World, stand: Stand) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)

    async def refuse(name: str) -> None:
        raise RequeueFailed("scontrol release was refused: Access denied")

    world.release = refuse  # type: ignore[method-assign]
    error = await refused(requests.ask_restore(stand.desk, stand.alice, "7"))
    assert type(error) is RequeueFailed
    await stand.turn()
    assert stand.session().state is State.HIBERNATED  # type: ignore[union-attr]
    assert not stand.journal.unsettled()


async def test_array_tasks_have_names_of_their_own(world: World, stand: Stand) -> None:
    world.submit(20, array=(20, 1))
    world.submit(21, array=(20, 2))
    await stand.turns(2)
    desk = stand.desk
    found = await requests.session(desk, stand.alice, "20_2")
    assert (found.id.job_id, found.job) == (21, "20_2")
    assert (await requests.session(desk, stand.alice, "21")).id.job_id == 21
    error = await refused(requests.session(desk, stand.alice, "20"))
    assert "20_1, 20_2" in error.hint
    told = await requests.events(desk, stand.alice, "20_2", 0, 10)
    assert {event.details["task"] for event in told} == {"20_2"}
    assert (await stand.hibernate(job="20_1")).state is State.HIBERNATING
    # Of tasks that have ended, too, by their owner and by operators.
    world.finish(21)
    await stand.turns(3)
    for caller in (stand.alice, stand.olga):
        assert (await requests.session(desk, caller, "20_2")).state is State.ENDED
    error = await refused(requests.session(desk, stand.bob, "20_2"))
    assert type(error) in (NotManaged, NotPermitted)


async def test_all_sessions_are_the_living_and_the_last_that_ended(
    world: World, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal keeps them for ever: nobody is given all of them at once."""
    monkeypatch.setattr(requests, "MOST_ENDED", 2)
    for job in (20, 21, 22):
        world.submit(job)
    await stand.turns(2)
    for job in (20, 21, 22):
        world.finish(job)
        await stand.turns(3)
    found = await requests.sessions(stand.desk, stand.alice, ended=True)
    assert [each.id.job_id for each in found] == [21, 22, 7]
    assert await requests.sessions(stand.desk, stand.bob, ended=True) == []


async def test_events_are_bounded(world: World, stand: Stand) -> None:
    for after, limit in ((0, 0), (0, 10**6), (-1, 5)):
        error = await refused(requests.events(stand.desk, stand.alice, "", after, limit))
        assert type(error) is BadRequest


async def test_who_waits_for_a_node_is_told_what_slurm_waits_for(
    world: World, stand: Stand
) -> None:
    from dataclasses import replace

    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    await stand.restore()
    view, now = stand.desk.view, stand.desk.clock.now()
    row = replace(
        view.jobs[7], state="PENDING", held=False, reason="Resources", started=int(now) + 600
    )
    view.answered(now, [row])
    waiting = await requests.session(stand.desk, stand.alice, "7")
    assert waiting.state is State.QUEUED
    assert waiting.progress.step.startswith("Slurm waits: Resources, start expected ")
    view.answered(now, [replace(row, reason="", started=0)])
    assert (await requests.session(stand.desk, stand.alice, "7")).progress.step == ""
