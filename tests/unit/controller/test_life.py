"""A session's whole life, as the world sees it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_reclaim.errors import Refused
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Outcome
from slurm_reclaim.stages import observe, requests
from tests.unit.controller.simulated import Agent
from tests.unit.controller.stand import Stand, refused
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
    assert job.begin == 0.0
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
    await world.release(7)
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
    await world.release(7)
    await stand.until(State.RESTORING)
    await world.requeue_held(7, special_exit=True)
    world.jobs_by_id[7].reason = slurm
    again = await stand.until(State.HIBERNATED)
    assert (again.reason, again.bad_nodes) == (told, ("n1",))


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
