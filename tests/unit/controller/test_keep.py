"""What stops a hibernation: its owner, the limits, the brake."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from slurm_reclaim.config.schema import Limits
from slurm_reclaim.errors import BadRequest, NotPermitted
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Outcome
from slurm_reclaim.model.sample import Reading
from slurm_reclaim.model.words import clock
from slurm_reclaim.stages import requests
from tests.unit.controller.life import WINDOW, Life, config, report
from tests.unit.controller.simulated import ALICE
from tests.unit.controller.world import World


async def test_keep_withdraws_the_warning_and_holds(life: Any) -> None:
    one = await life().warned()
    kept = await requests.keep(one.stand.desk, one.stand.alice, "7", 3600)
    assert kept.state is State.ACTIVE
    assert one.job.comment == "my notebook"
    await one.pass_time(3500)
    assert one.state is State.ACTIVE
    assert one.stand.post.kinds() == ["warning", "withdrawn"]
    await one.stand.until(State.WARNED, 30)


@pytest.mark.parametrize("restarted", [False, True])
async def test_after_a_short_keep_there_is_a_whole_window(life: Any, restarted: bool) -> None:
    """Who answers is there: the window begins anew, however short the time that was asked for. A
    controller that is restarted right after its answer knows it, too."""
    one = await life().warned()
    await requests.keep(one.stand.desk, one.stand.alice, "7", 30)
    kept = one.world.time
    told = await requests.explain(one.stand.desk, one.stand.alice, "7")
    assert (told.standing, told.reason) == ("active", "in use: keep said by alice")
    if restarted:
        await one.stand.reboot()
    await one.pass_time(60)
    told = await requests.explain(one.stand.desk, one.stand.alice, "7")
    assert told.idle <= one.world.time - kept
    await one.stand.until(State.WARNED, 100)
    assert WINDOW <= one.world.time - kept <= WINDOW + 60
    assert "(keep)" in next(e.reason for e in reversed(one.stand.journal.events(limit=1000))
                            if e.kind == "idle-confirmed")  # fmt: skip


async def test_keep_is_the_owners_and_has_bounds(life: Any) -> None:
    one = await life().start()
    with pytest.raises(NotPermitted):
        await requests.keep(one.stand.desk, one.stand.bob, "7", 3600)
    for seconds in (0.5, -1.0, 1e9):
        with pytest.raises(BadRequest, match="kept"):
            await requests.keep(one.stand.desk, one.stand.alice, "7", seconds)
    until = (await requests.keep(one.stand.desk, one.stand.olga, "7", 0)).kept_until
    await one.pass_time(60)
    told = await requests.explain(one.stand.desk, one.stand.alice, "7")
    assert told.follows.startswith(f"warned {clock(until)} at the earliest; kept: ")


async def test_keep_while_it_is_being_saved_stops_it(life: Any) -> None:
    """The agent has not committed yet: the order to cancel arrives, the tree runs on (S5)."""
    one = await life().warned()
    one.node.up = False
    one.stand.desk.view.started = 0.0
    await one.stand.surviving(one.stand.controller.cycle)
    one.world.time = one.stand.session().warned.deadline + 1
    one.node.up = True
    one.node.hibernate = Outcome.CANCELLED
    while one.state is State.WARNED:
        await one.stand.surviving(one.stand.controller.cycle)
        one.world.time += 0.5
        one.world.heard(one.node, report(one))
    assert one.state is State.HIBERNATING
    await requests.keep(one.stand.desk, one.stand.alice, "7", 3600)
    hibernate, cancel = one.stand.desk.orders.of_node("n1")
    assert (hibernate.verb.value, cancel.verb.value) == ("hibernate", "cancel")
    assert hibernate.cancel_on_activity
    (before_last, *_), _ = one.stand.desk.evidence[one.stand.session().id].recent[-2:]
    assert hibernate.since == before_last, "the sample that the decision rests on"
    await one.stand.until(State.ACTIVE)
    await one.pass_time(300)
    assert one.state is State.ACTIVE


async def test_keep_after_the_commit_restores_in_place(life: Any) -> None:
    one = await life().warned()
    while one.state is not State.HIBERNATING:
        await one.stand.surviving(one.stand.controller.cycle)
        one.world.time += 5
        one.world.heard(one.node, report(one))
    await requests.keep(one.stand.desk, one.stand.alice, "7", 3600)
    await one.stand.until(State.ACTIVE)
    assert one.job.restarts == 0
    assert "requeue-refused" in one.kinds()
    assert one.job.state == "RUNNING"
    assert one.node.trees[7].restored


async def test_turns_by_deadline_within_the_limits(world: World, engine: Engine) -> None:
    """Three due on one node, one at a time: whoever was due first goes first."""
    limits = Limits(per_node=1)
    world.agents = {"n1": world.agents["n1"]}
    one = Life(world, engine, config(limits=limits))
    for job_id in (8, 9):
        world.submit(job_id)
    await one.stand.turns(130)
    done = [line for line in world.history if line.startswith("requeue")]
    assert sorted(done) == [f"requeue {n} from n1" for n in (7, 8, 9)]
    events = one.stand.journal.events(limit=1000)
    passed = [e.at for e in events if e.kind == "deadline-passed"]
    observed = [e.at for e in events if e.kind == "requeue-observed"]
    assert passed[1] > observed[0]
    assert passed[2] > observed[1]


async def test_too_many_keeps_pull_the_brake(life: Any) -> None:
    limits = Limits(brake_least=2, brake_owners=1, brake_keeps=0.5)
    one = await life(limits=limits).start()
    for _ in range(2):
        await one.stand.until(State.WARNED, 100)
        one.node.readings["terminal"] = Reading(1.0)
        await one.pass_time(20)
        one.node.readings["terminal"] = Reading(0.0)
    await one.pass_time(1500)
    assert one.state is State.ACTIVE
    assert "brake-pulled" in one.kinds()
    assert "brake" in one.stand.post.kinds()
    await one.stand.reboot()
    assert "warnings were answered" in one.stand.desk.brake
    with pytest.raises(NotPermitted):
        await requests.set_brake(one.stand.desk, one.stand.alice, "")
    assert await requests.set_brake(one.stand.desk, one.stand.olga, "") == ""
    await one.stand.until(State.WARNED, 200)


async def test_one_owner_alone_pulls_no_brake(life: Any) -> None:
    one = await life(limits=Limits(brake_least=2, brake_keeps=0.5)).start()
    for _ in range(3):
        await one.stand.until(State.WARNED, 200)
        one.node.readings["terminal"] = Reading(1.0)
        await one.pass_time(20)
        one.node.readings["terminal"] = Reading(0.0)
    await one.pass_time(100)
    assert one.stand.desk.history.counts(0)["kept"] == {ALICE: 3}
    assert one.stand.desk.brake == ""


async def test_the_brake_takes_warnings_back(life: Any) -> None:
    one = await life().warned()
    await requests.set_brake(one.stand.desk, one.stand.root, "new kernel")
    await one.pass_time(20)
    assert one.state is State.ACTIVE
    assert "new kernel" in one.stand.session().reason
    await one.stand.hibernate()
    await one.stand.until(State.HIBERNATED)


async def test_owners_hibernate_wins_over_a_warning(life: Any) -> None:
    one = await life().warned()
    await one.stand.hibernate()
    await one.stand.until(State.HIBERNATED)
    assert one.job.comment.startswith("hibernated ")
    await one.stand.restore()
    await one.stand.until(State.ACTIVE)
    await one.pass_time(30)
    assert one.job.comment == "my notebook"
