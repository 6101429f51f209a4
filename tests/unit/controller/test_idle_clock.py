"""What is unknown, stale or implausible makes nobody idle (S4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Outcome, Report
from slurm_reclaim.model.sample import Reading
from slurm_reclaim.stages import observe, requests
from tests.unit.controller.life import GRACE, WINDOW, Life
from tests.unit.controller.simulated import QUIET


async def test_what_is_unknown_stops_the_clock(life: Any) -> None:
    one = await life().start()
    await one.pass_time(300)
    one.node.readings["cpu"] = Reading(None, what="no cgroup")
    await one.pass_time(1000)
    assert one.state is State.ACTIVE
    told = await requests.explain(one.stand.desk, one.stand.alice, "7")
    assert told.standing == "unknown"
    assert "cpu is unknown (no cgroup)" in told.reason
    one.node.readings["cpu"] = Reading(0.0)
    known = one.world.time
    await one.stand.until(State.WARNED, 100)
    assert one.world.time - known >= WINDOW - 20, "longer than the gap: it starts anew"


async def test_a_short_gap_only_makes_it_wait(life: Any) -> None:
    one = await life().start()
    began = one.world.time
    await one.pass_time(300)
    one.node.readings["cpu"] = Reading(None)
    await one.pass_time(40)
    one.node.readings["cpu"] = Reading(0.0)
    await one.stand.until(State.WARNED, 100)
    assert WINDOW + 30 <= one.world.time - began <= WINDOW + 100


async def test_a_job_that_slurm_has_suspended_is_not_idle(life: Any) -> None:
    """Nobody can use it then, by an operator's word or while another job has its resources."""
    one = await life().start()
    one.job.state = "SUSPENDED"
    await one.pass_time(2 * WINDOW)
    assert one.state is State.ACTIVE
    told = await requests.explain(one.stand.desk, one.stand.alice, "7")
    assert told.standing == "unknown"
    one.job.state = "RUNNING"
    resumed = one.world.time
    await one.stand.until(State.WARNED, 100)
    assert one.world.time - resumed >= WINDOW - 20
    one.job.state = "SUSPENDED"
    await one.pass_time(GRACE + 200)
    assert one.state is State.ACTIVE
    assert "deadline-passed" not in one.kinds()


async def test_unknown_at_the_deadline_is_no_hibernation(life: Any) -> None:
    one = await life().warned()
    one.node.measures = False
    await one.pass_time(GRACE)
    assert one.state is State.WARNED
    await one.pass_time(200)
    assert one.state is State.ACTIVE
    assert one.job.comment == "my notebook"
    assert "hibernate" not in {what for _, _, what, _ in one.stand.journal.unsettled()}


async def test_an_agent_that_died_shortly_before_the_deadline_is_no_hibernation(life: Any) -> None:
    """What it said last is fresh enough to be believed, but says nothing of the deadline."""
    one = await life().warned()
    deadline = one.stand.session().warned.deadline
    while one.world.time < deadline - 15:
        await one.stand.turn(5)
    one.node.up = False
    for _ in range(10):
        await one.stand.turn(5)
    assert one.world.time > deadline + 20
    assert one.state is State.WARNED
    assert "deadline-passed" not in one.kinds()


async def test_a_gpu_job_without_gpu_readings_is_unknown(life: Any) -> None:
    one = await life().start()
    session = next(iter(one.stand.desk.sessions.values()))
    one.stand.desk.update(session.id, tres="cpu=1,gres/gpu=1")
    one.stand.desk.terms.clear()
    await one.pass_time(2000)
    assert one.state is State.ACTIVE
    told = await requests.explain(one.stand.desk, one.stand.alice, "7")
    assert told.standing == "unknown"
    assert [v.vote for v in told.votes if v.signal == "gpu"] == ["unknown"]


async def test_a_controller_that_was_away_at_the_deadline_warns_anew(life: Any) -> None:
    one = await life().warned()
    deadline = one.stand.session().warned.deadline
    one.world.time = deadline + 7200
    await one.stand.reboot()
    one.stand.desk.view.started = one.world.time
    await one.pass_time(40)
    session = one.stand.session()
    assert session.state in (State.IDLE, State.WARNED)
    await one.stand.until(State.WARNED)
    assert one.stand.session().warned.deadline > one.world.time
    assert one.stand.post.kinds()[-1] == "warning"
    assert "deadline-passed" not in one.kinds()


async def test_also_where_it_was_away_only_for_a_moment(life: Any) -> None:
    one = await life().warned()
    deadline = one.stand.session().warned.deadline
    while one.world.time < deadline - 15:
        await one.stand.turn(5)
    one.world.time = deadline + 5
    await one.stand.reboot()
    one.stand.desk.view.started = one.world.time
    await one.pass_time(60)
    assert "deadline-passed" not in one.kinds()
    assert one.stand.post.kinds() == ["warning", "withdrawn", "warning"]


async def test_the_clock_goes_on_over_a_restart(life: Any) -> None:
    one = await life().start()
    began = one.world.time
    await one.pass_time(300)
    await one.stand.reboot()
    await one.stand.until(State.WARNED, 100)
    assert WINDOW <= one.world.time - began <= WINDOW + 120


async def test_old_evidence_alone_does_nothing(life: Any) -> None:
    one = await life().start()
    await one.pass_time(WINDOW - 60)
    one.node.up = False
    one.world.time += 7200
    await one.stand.reboot()
    await one.pass_time(120)
    assert one.state is State.ACTIVE


async def test_after_a_use_that_only_its_agent_saw_the_window_begins_anew(life: Any) -> None:
    one = await life().warned()
    one.node.hibernate = Outcome.CANCELLED
    await one.stand.until(State.ACTIVE, 30)
    cancelled = one.world.time
    await one.stand.until(State.WARNED, 100)
    assert one.world.time - cancelled >= WINDOW


def test_the_quiet_readings_are_all_that_is_required() -> None:
    assert set(QUIET) == {"cpu", "io", "network", "terminal"}


async def standing(one: Life) -> str:
    return (await requests.explain(one.stand.desk, one.stand.alice, "7")).standing


async def test_a_clock_that_was_put_back_makes_nobody_idle(life: Any) -> None:
    one = await life(mode="shadow").start()
    await one.pass_time(900)
    assert await standing(one) == "idle"
    one.world.time -= 3600
    one.node.trees[7].measured = one.world.time
    one.node.readings["cpu"] = Reading(4.0)
    await one.pass_time(30)
    assert await standing(one) == "unknown"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: replace(r, node="n2"),
        lambda r: with_sample(r, at=r.at + 86_400),
        lambda r: with_sample(r, seconds=-10.0),
        lambda r: with_sample(r, readings={"cpu": Reading(1e300)}),
        lambda r: with_sample(r, readings={"cpu": Reading(float("nan"))}),
        lambda r: of_session(r, uid=4711),
        lambda r: of_session(r, session="cluster/7.4711.1"),
        lambda r: with_sample(r, readings={f"s{n}": Reading(0.0) for n in range(1000)}),
    ],
)
async def test_what_no_agent_of_the_session_can_have_measured_is_left_out(
    life: Any, spoil: Any
) -> None:
    one = await life().start()
    await one.pass_time(100)
    before = dict(one.stand.desk.evidence)
    one.world.time += 10
    observe.take_report(one.stand.desk, spoil(one.world.report(one.node)))
    assert one.stand.desk.evidence == before


def with_sample(report: Report, **changes: Any) -> Report:
    (told,) = report.sessions
    (sample,) = told.samples
    return replace(report, sessions=(replace(told, samples=(replace(sample, **changes),)),))


def of_session(report: Report, **changes: Any) -> Report:
    (told,) = report.sessions
    return replace(report, sessions=(replace(told, **changes),))


async def test_what_the_agent_saw_in_use_is_idle_no_more(life: Any) -> None:
    one = await life().warned()
    one.node.hibernate = Outcome.CANCELLED
    while "deadline-passed" not in one.kinds():
        await one.stand.turn()
    await one.stand.until(State.ACTIVE)
    await one.pass_time(WINDOW / 2)
    assert one.kinds().count("idle-confirmed") == 1
