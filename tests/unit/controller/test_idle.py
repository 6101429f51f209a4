"""From idleness over the warning to the hibernation, and every way back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from slurm_reclaim.config.schema import Rule
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.notice import NoticeKind
from slurm_reclaim.model.order import Outcome
from slurm_reclaim.model.sample import Reading
from slurm_reclaim.stages import requests
from tests.unit.controller.life import GRACE, WINDOW, report, with_idle
from tests.unit.controller.world import World


async def test_idle_warned_hibernated_restored(life: Any) -> None:
    one = await life().start()
    began = one.world.time
    warned = await one.stand.until(State.WARNED, 100)
    assert WINDOW <= one.world.time - began <= WINDOW + 60
    assert warned.warned.deadline - one.world.time == pytest.approx(GRACE, abs=30)
    assert "unless it is used; keep: reclaim keep 7" in one.job.comment
    assert one.stand.post.kinds() == ["warning"]
    assert one.stand.post.sent[0].deadline == warned.warned.deadline
    assert one.node.terminal_texts == ["warning 7"]
    hibernated = await one.stand.until(State.HIBERNATED, 30)
    assert one.world.time >= warned.warned.deadline
    assert hibernated.warned is None
    assert one.job.comment.startswith("hibernated ")
    await one.pass_time(30)
    assert one.stand.post.kinds() == ["warning", "hibernated"]
    await one.stand.restore()
    await one.stand.until(State.ACTIVE)
    await one.pass_time(30)
    assert one.job.comment == "my notebook"
    assert one.kinds()[:5] == [
        "idle-confirmed", "notice-delivered", "deadline-passed", "checkpoint-committed",
        "requeue-observed",
    ]  # fmt: skip
    assert not one.stand.journal.unsettled()


async def test_after_a_restore_the_window_begins_anew(life: Any) -> None:
    one = await life().warned()
    await one.stand.until(State.HIBERNATED, 30)
    await one.stand.restore()
    await one.stand.until(State.ACTIVE)
    back = one.world.time
    await one.stand.until(State.WARNED, 100)
    assert one.world.time - back >= WINDOW


async def test_shadow_says_once_what_it_would_do_and_does_nothing(life: Any) -> None:
    one = await life(mode="shadow").start()
    await one.pass_time(2000)
    assert one.state is State.ACTIVE
    (event,) = [e for e in one.stand.journal.events(limit=100) if e.kind == "shadow"]
    assert event.details["stage"] == "interactive_reclaim"
    assert event.details["action"] == "would_hibernate_session"
    assert WINDOW <= event.details["idle_seconds"] <= WINDOW + 30
    assert event.details["vram_bytes"] == 0
    assert (one.stand.post.sent, one.node.terminal_texts) == ([], [])
    assert one.job.comment == "my notebook"
    one.node.readings["cpu"] = Reading(1.0)
    await one.pass_time(100)
    one.node.readings["cpu"] = Reading(0.0)
    await one.pass_time(1000)
    assert one.kinds() == ["shadow", "shadow"]


async def test_off_is_not_consulted(life: Any) -> None:
    one = await life(mode="off").start()
    await one.pass_time(2000)
    assert one.kinds() == []


async def test_a_rule_is_never_stronger_than_the_cluster(life: Any) -> None:
    one = await life(mode="shadow", rule=[Rule(user=["alice"], mode="prod")]).start()
    await one.pass_time(1500)
    assert one.kinds() == ["shadow"]


async def test_a_job_that_is_moved_to_another_qos_is_judged_by_it(life: Any) -> None:
    """Whoever does that may mean to exempt it, also in the last minute."""
    one = await life(rule=[Rule(qos=["exempt"], mode="off")]).warned()
    one.job.qos = "exempt"
    await one.pass_time(40)
    assert one.state is State.ACTIVE
    assert one.stand.session().qos == "exempt"
    await one.pass_time(2 * WINDOW)
    assert one.state is State.ACTIVE
    assert "deadline-passed" not in one.kinds()


@pytest.mark.parametrize("used", [True, False])
async def test_a_comment_that_was_written_over_the_warning_stays(life: Any, used: bool) -> None:
    one = await life().warned()
    one.job.comment = "for the paper"
    if used:
        one.node.readings["cpu"] = Reading(2.0)
        await one.stand.until(State.ACTIVE)
        one.node.readings["cpu"] = Reading(0.0)
    else:
        await one.stand.until(State.HIBERNATED, 30)
        await one.stand.restore()
        await one.stand.until(State.ACTIVE)
    await one.stand.turns(2)
    assert one.job.comment == "for the paper"


async def test_notify_only_tells_once(life: Any) -> None:
    one = await life(rule=[Rule(user=["alice"], action="notify")]).start()
    await one.pass_time(3000)
    assert one.state is State.ACTIVE
    assert one.stand.post.kinds() == ["idle"]


@pytest.mark.parametrize(
    ("signal", "value"), [("cpu", 2.0), ("terminal", 1.0), ("jupyter", 1.0), ("gpu", 3.0)]
)
async def test_any_use_after_the_warning_takes_it_back(
    life: Any, signal: str, value: float
) -> None:
    one = await life().warned()
    one.node.readings[signal] = Reading(value, what="somebody")
    await one.pass_time(20)
    assert one.state is State.ACTIVE
    assert one.job.comment == "my notebook"
    one.node.readings[signal] = Reading(0.0)
    await one.pass_time(30)
    assert one.stand.post.kinds() == ["warning", "withdrawn"]
    assert not one.stand.desk.tellings, "nothing is kept of what nobody asks for"
    assert one.node.terminal_texts == ["warning 7", "withdrawn 7"]
    again = one.world.time
    await one.stand.until(State.WARNED, 100)
    assert one.world.time - again >= WINDOW - 40
    assert one.kinds()[:3] == ["idle-confirmed", "notice-delivered", "activity-seen"]


async def test_nobody_told_nothing_done(life: Any) -> None:
    one = await life().start()
    one.stand.post.refuses = "550 no such user"
    one.node.terminals = 0
    await one.pass_time(WINDOW + 200)
    assert one.state is State.ACTIVE
    assert one.kinds()[:2] == ["idle-confirmed", "withdrawn"]
    session = one.stand.session()
    assert "nobody could be told" in session.reason
    assert "550 no such user" in session.reason
    assert one.job.comment == "my notebook"
    await one.pass_time(1000)
    assert len(one.stand.post.sent) == 1, "not again within the cool-down"


async def test_nobody_is_warned_of_what_cannot_be_done(life: Any) -> None:
    one = await life(idle=with_idle(cooldown=300.0)).start()
    one.node.blockers = (Blocker("io-uring", "python (300) has an io_uring"),)
    await one.pass_time(WINDOW + 200)
    assert one.state is State.ACTIVE
    assert one.stand.post.kinds() == ["blocked"]
    assert "io_uring" in one.stand.post.sent[0].reason
    assert one.stand.session().blockers
    told = await requests.explain(one.stand.desk, one.stand.alice, "7")
    assert told.guard.startswith("blocked: io-uring")
    await one.pass_time(800)
    assert one.kinds().count("preflight-refused") >= 2
    assert one.stand.post.kinds() == ["blocked"]  # once while it stays idle
    one.node.readings["cpu"] = Reading(2.0)
    await one.pass_time(40)
    one.node.readings["cpu"] = Reading(0.0)
    await one.pass_time(800)
    assert one.stand.post.kinds() == ["blocked"] * 2
    one.node.blockers = ()
    await one.stand.until(State.WARNED, 300)


async def test_a_look_that_does_not_end_is_given_up(life: Any) -> None:
    one = await life().start()
    one.node.looks = False
    await one.stand.until(State.IDLE, 100)
    await one.pass_time(120)
    assert one.state is State.IDLE
    await one.pass_time(120)
    session = one.stand.session()
    assert session.state is State.ACTIVE
    assert session.reason == "its agent could not look at all of it within 3m"
    assert one.stand.desk.orders.of_node("n1") == []
    assert one.stand.journal.unsettled() == []
    await one.pass_time(1500)
    assert one.kinds().count("preflight-refused") == 1  # a cool-down
    one.node.looks = True
    await one.stand.until(State.WARNED, 100)


async def test_a_silent_agent_is_no_look_that_does_not_end(life: Any) -> None:
    one = await life(idle=with_idle(gap=3600.0)).start()
    one.node.looks = False
    await one.stand.until(State.IDLE, 100)
    one.node.up = False
    await one.pass_time(80)
    await one.pass_time(600)
    assert "preflight-refused" not in one.kinds()


async def test_a_job_that_cannot_be_requeued_is_not_warned(life: Any) -> None:
    one = await life().start()
    one.job.requeue = False
    await one.pass_time(WINDOW + 200)
    assert one.stand.post.sent == []
    assert "may not be requeued" in one.stand.session().reason


async def test_guards_have_names(life: Any, world: World) -> None:
    one = await life(idle=with_idle(min_age=5000.0)).start()
    await one.pass_time(1000)
    assert one.state is State.ACTIVE
    (note,) = [e for e in one.stand.journal.events(limit=100) if e.kind == "not-warned"]
    assert note.reason.startswith("too-young: ")


async def test_failures_lead_to_a_cool_down(life: Any) -> None:
    one = await life().warned()
    one.node.hibernate = Outcome.FAILED
    await one.stand.until(State.ACTIVE, 30)
    await one.pass_time(60)
    assert one.job.comment == "my notebook"
    assert one.stand.post.kinds() == ["warning", "not-hibernated"]
    assert one.stand.post.sent[1].reason == "sim: failed"
    await one.pass_time(1500)
    assert one.state is State.ACTIVE
    told = await requests.explain(one.stand.desk, one.stand.alice, "7")
    assert told.guard.startswith("cool-down: ")


async def test_whoever_was_warned_is_told_that_it_was_refused(life: Any) -> None:
    one = await life().warned()
    one.node.hibernate = Outcome.REFUSED
    await one.stand.until(State.ACTIVE, 30)
    await one.pass_time(60)
    assert one.stand.post.kinds() == ["warning", "not-hibernated"]


async def test_a_use_in_the_last_second_makes_the_warning_void(life: Any) -> None:
    one = await life().warned()
    one.node.hibernate = Outcome.CANCELLED
    await one.stand.until(State.ACTIVE, 30)
    await one.pass_time(60)
    assert one.stand.post.kinds() == ["warning", "withdrawn"]


async def test_an_order_that_is_never_answered_did_not_work(life: Any) -> None:
    one = await life().warned()
    one.world.obey = lambda agent, order: None
    await one.pass_time(GRACE + 40)
    assert one.state is State.HIBERNATING
    await one.pass_time(2000)
    assert one.state is State.ACTIVE
    assert one.stand.post.kinds() == ["warning", "not-hibernated"]


async def test_a_busy_kernel_without_work_is_reported(life: Any) -> None:
    one = await life(idle=with_idle(busy_report=1000.0)).start()
    one.node.readings["jupyter"] = Reading(1.0, what="kernel 3f2a busy")
    await one.pass_time(1500)
    assert one.state is State.ACTIVE
    (note,) = [e for e in one.stand.journal.events(limit=100) if e.kind == "busy-without-work"]
    assert "kernel 3f2a busy" in note.reason


async def test_kernels_that_change_their_names_are_reported_once(life: Any) -> None:
    """Whoever runs the server says what its kernels are called."""
    one = await life(idle=with_idle(busy_report=1000.0)).start()

    def notes() -> int:
        return one.kinds().count("busy-without-work")

    for number in range(75):
        one.node.readings["jupyter"] = Reading(1.0, what=f"kernel {number} busy")
        await one.pass_time(20)
    assert notes() == 1
    one.node.readings["cpu"] = Reading(2.0)
    await one.pass_time(100)
    one.node.readings["cpu"] = Reading(0.0)
    await one.pass_time(900)
    assert notes() == 1
    await one.pass_time(300)
    assert notes() == 2  # it had worked meanwhile


async def test_a_use_while_slurm_was_asked_takes_the_warning_back(
    life: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm may take half a minute to answer; the agent alone would not see this use (S5)."""
    one = await life().warned()
    deadline, detail = one.stand.session().warned.deadline, one.world.detail
    used = []

    async def slow(job_id: int) -> Any:
        if one.world.time > deadline and not used:
            used.append(one.world.time)
            one.node.readings["network"] = Reading(1e9)
            one.world.time += 20
            report(one)
        return await detail(job_id)

    monkeypatch.setattr(one.world, "detail", slow)
    await one.pass_time(GRACE + 60)
    assert used
    assert one.state is State.ACTIVE
    assert "deadline-passed" not in one.kinds()


async def test_a_notice_that_waits_for_its_turn_is_not_given_up(life: Any) -> None:
    """Thousands may be told in the same minute; each has its time when its turn comes."""
    one = await life().start()
    turn, deliver = asyncio.Event(), one.stand.post.deliver

    async def queued(notice: Any, only: Any) -> Any:
        await turn.wait()
        return await deliver(notice)

    one.stand.post.deliver = queued
    one.node.terminals = 0
    await one.stand.until(State.IDLE, 100)
    await one.pass_time(80)
    assert one.state is State.IDLE
    turn.set()
    assert (await one.stand.until(State.WARNED)).warned is not None


async def test_a_warning_that_came_too_late_is_none(life: Any) -> None:
    one = await life().start()
    turn, deliver = asyncio.Event(), one.stand.post.deliver

    async def queued(notice: Any, only: Any) -> Any:
        if notice.kind is NoticeKind.WARNING:
            await turn.wait()
        return await deliver(notice)

    one.stand.post.deliver = queued
    one.node.terminals = 0
    await one.stand.until(State.IDLE, 100)
    await one.pass_time(GRACE + 40)
    turn.set()
    await one.stand.turns(4)
    assert one.state is State.ACTIVE
    assert one.stand.post.kinds() == ["warning", "withdrawn"]
    assert "after the deadline" in one.stand.session().reason
