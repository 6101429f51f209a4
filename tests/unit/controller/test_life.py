"""A session's whole life, as the world sees it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Outcome
from slurm_reclaim.stages import hold, observe, release
from tests.unit.controller.simulated import Agent
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World


async def test_hibernate_and_restore(world: World, stand: Stand) -> None:
    job = world.jobs_by_id[7]
    assert (await stand.hibernate()).state is State.HIBERNATING
    hibernated = await stand.until(State.HIBERNATED)
    assert (job.state, job.restarts, job.held) == ("SPECIAL_EXIT", 1, True)
    assert hibernated.restarts == 1
    assert hibernated.checkpoint == 0
    assert job.comment.startswith("hibernated 2027-")
    assert job.comment.endswith("1.2 MiB; restore: reclaim restore 7")
    assert job.admin_comment.startswith("JS1:abc [slurm-reclaim: hibernated 2027-")
    await stand.turn()
    assert job.begin <= world.time
    assert 3480 <= job.time_limit <= 3600
    assert (await stand.restore()).state is State.QUEUED
    active = await stand.until(State.ACTIVE)
    assert active.restarts == 1
    assert world.agents[active.node].trees[7].restored
    await stand.turns(2)
    assert (job.comment, job.admin_comment) == ("my notebook", "JS1:abc")
    assert not stand.journal.unsettled()
    assert stand.kinds() == [
        "adopted", "hibernate-asked", "checkpoint-committed", "requeue-observed", "released",
        "job-started", "restore-succeeded",
    ]  # fmt: skip


async def test_a_job_does_not_start_in_the_second_in_which_it_was_requeued(
    world: World, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmd would take the new credential for the revoked one, and Slurm the job for failed."""
    monkeypatch.setattr(hold, "SETTLE", 2)
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        world.time += seconds

    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    monkeypatch.setattr(release.asyncio, "sleep", sleep)
    seen = world.time
    await stand.restore()
    monkeypatch.undo()
    job = world.jobs_by_id[7]
    assert not job.held
    assert seen + 1 < job.begin <= world.time, "released when it may start, not before"
    assert 1.5 < max(waited) <= 2
    await stand.until(State.ACTIVE)


async def test_five_lives_in_a_row(world: World, stand: Stand) -> None:
    for life in range(1, 6):
        await stand.hibernate()
        await stand.until(State.HIBERNATED)
        await stand.restore()
        active = await stand.until(State.ACTIVE)
        assert (active.restarts, active.checkpoint) == (life, life - 1)
        await stand.turns(2)
        assert world.jobs_by_id[7].comment == "my notebook"


async def test_the_time_limit_is_what_was_left(world: World, stand: Stand) -> None:
    """Minutes are rounded up for Slurm, but only once, however often it is hibernated."""
    job = world.jobs_by_id[7]
    started, job.started, limits = job.started, job.started - 130, []
    for _ in range(3):
        await stand.hibernate()
        await stand.until(State.HIBERNATED)
        await stand.turn()
        limits.append(job.time_limit)
        await stand.restore()
        await stand.until(State.ACTIVE)
        await stand.turn()
    used = world.now() - started
    assert limits == sorted(limits, reverse=True)
    assert 3600 - 130 - used - 60 < limits[-1] <= 3600 - 130
    job.time_limit = 7200  # an operator has raised it
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    assert 6900 < stand.session().time_left < 7200  # type: ignore[union-attr]


async def test_the_owners_own_release_is_a_restore(world: World, stand: Stand) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    await world.release("7")
    world.jobs_by_id[7].begin = world.time + 15
    await stand.until(State.QUEUED)
    await stand.until(State.ACTIVE)
    assert "released by the owner or an operator" in [e.reason for e in stand.journal.events()]


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome.REFUSED, "preflight-refused"),
        (Outcome.CANCELLED, "activity-seen"),
        (Outcome.FAILED, "dump-failed"),
    ],
)
async def test_what_fails_before_the_commit_leaves_the_session_alone(
    world: World, stand: Stand, outcome: Outcome, kind: str
) -> None:
    world.agents["n1"].hibernate = outcome
    await stand.hibernate()
    active = await stand.until(State.ACTIVE)
    assert kind in stand.kinds()
    assert active.reason == f"sim: {outcome.value}"
    assert (world.jobs_by_id[7].state, world.jobs_by_id[7].comment) == ("RUNNING", "my notebook")
    assert not stand.journal.unsettled()


async def test_nodes_that_can_not_restore_it_are_excluded_while_it_is_held(
    world: World, stand: Stand
) -> None:
    world.jobs_by_id[7].excluded = "n9,gone"
    world.node_states["n9"] = frozenset({"idle"})
    world.agents["n9"] = Agent("n9")
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    old = world.agents["n1"]
    old.facts = replace(old.facts, kernel="5.14.0-1")
    await stand.turn()
    assert world.jobs_by_id[7].excluded == "n[1,9]"
    old.facts = replace(old.facts, kernel="6.18.6")
    await stand.turn()
    assert world.jobs_by_id[7].excluded == "n9"
    world.agents["n2"].up = False
    await stand.turns(10)
    assert world.jobs_by_id[7].excluded == "n[2,9]"
    world.jobs_by_id[7].time_limit = 1800  # the owner's own wish is left alone
    world.agents["n2"].up = True
    await stand.turn()
    assert (world.jobs_by_id[7].excluded, world.jobs_by_id[7].time_limit) == ("n9", 1800)


async def test_a_commit_that_nobody_ordered_is_believed(world: World, stand: Stand) -> None:
    """The order was given up, the agent carried it out late: the image is all there is."""
    await stand.hibernate()
    order = stand.desk.orders.of_node("n1")[0]
    stand.desk.drop_orders(stand.session().id, "lost")  # type: ignore[union-attr]
    await stand.turn()
    assert (await stand.until(State.ACTIVE)).restarts == 0
    world.obey(world.agents["n1"], order)
    assert (await stand.until(State.HIBERNATED)).restarts == 1


async def test_a_report_repeated_or_late_changes_nothing(world: World, stand: Stand) -> None:
    agent = world.agents["n1"]
    await stand.hibernate()
    world.obey(agent, stand.desk.orders.of_node("n1")[0])
    old = world.report(agent)
    await stand.until(State.HIBERNATED)
    for _ in range(2):
        reply = observe.take_report(stand.desk, old)
        assert reply.acknowledged == tuple(r.order for r in old.results)
        await stand.turn()
    assert stand.session().state is State.HIBERNATED  # type: ignore[union-attr]


async def test_a_comment_that_was_written_over_ours_stays(world: World, stand: Stand) -> None:
    job = world.jobs_by_id[7]
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    job.comment = "bring me back on Monday"
    await stand.restore()
    await stand.until(State.ACTIVE)
    await stand.turns(2)
    assert (job.comment, job.admin_comment) == ("bring me back on Monday", "JS1:abc")
