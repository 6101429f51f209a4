"""From idleness over the warning to the hibernation, and every way back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from slurm_reclaim.config.schema import Config, Idle, Limits, Notices, Rule
from slurm_reclaim.errors import BadRequest, NotPermitted
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Outcome, Report
from slurm_reclaim.model.sample import Reading
from slurm_reclaim.stages import observe, requests
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import QUIET, World

WINDOW, GRACE = 600.0, 120.0
IDLE = {"window": WINDOW, "grace": GRACE, "gap": 60.0, "min_age": 0.0, "cooldown": 1800.0}


def config(mode: str = "prod", **more: Any) -> Config:
    notice = Notices(channels=["terminal", "comment", "mail"], enough=["terminal", "mail"])
    tables = {"idle": Idle(**IDLE), "notice": notice, **more}
    return Config(mode=mode, **tables)


def with_idle(**more: Any) -> Idle:
    return Idle(**{**IDLE, **more})


class Life:
    """Session 7 under a policy."""

    def __init__(self, world: World, engine: Engine, config: Config) -> None:
        self.world = world
        self.stand = Stand(world, engine, config=config)
        self.node = world.agents["n1"]
        self.job = world.submit(7)

    async def start(self) -> Life:
        await self.stand.until(State.ACTIVE)
        return self

    async def pass_time(self, seconds: float) -> None:
        await self.stand.turns(round(seconds / 20), 20.0)

    async def warned(self) -> Life:
        await self.start()
        await self.stand.until(State.WARNED, 100)
        return self

    @property
    def state(self) -> State:
        session = self.stand.session()
        assert session is not None
        return session.state

    def kinds(self) -> list[str]:
        return [k for k in self.stand.kinds() if k != "adopted"]


@pytest.fixture
def life(world: World, engine: Engine) -> Any:
    def make(**more: Any) -> Life:
        return Life(world, engine, config(**more))

    return make


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


async def test_keep_withdraws_the_warning_and_holds(life: Any) -> None:
    one = await life().warned()
    kept = await requests.keep(one.stand.desk, one.stand.alice, "7", 3600)
    assert kept.state is State.ACTIVE
    assert one.job.comment == "my notebook"
    await one.pass_time(3500)
    assert one.state is State.ACTIVE
    assert one.stand.post.kinds() == ["warning", "withdrawn"]
    await one.stand.until(State.WARNED, 30)


async def test_keep_is_the_owners_and_has_bounds(life: Any) -> None:
    one = await life().start()
    with pytest.raises(NotPermitted):
        await requests.keep(one.stand.desk, one.stand.bob, "7", 3600)
    for seconds in (0.5, -1.0, 1e9):
        with pytest.raises(BadRequest, match="kept"):
            await requests.keep(one.stand.desk, one.stand.alice, "7", seconds)
    assert (await requests.keep(one.stand.desk, one.stand.olga, "7", 0)).kept_until > 0


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
        one.world.heard(one.node, _report(one))
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
        one.world.heard(one.node, _report(one))
    await requests.keep(one.stand.desk, one.stand.alice, "7", 3600)
    await one.stand.until(State.ACTIVE)
    assert one.job.restarts == 0
    assert "requeue-refused" in one.kinds()
    assert one.job.state == "RUNNING"
    assert one.node.trees[7].restored


def _report(one: Life) -> Any:
    return observe.take_report(one.stand.desk, one.world.report(one.node))


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
    one = await life().start()
    one.node.blockers = (Blocker("io-uring", "python (300) has an io_uring"),)
    await one.pass_time(WINDOW + 200)
    assert one.state is State.ACTIVE
    assert one.stand.post.sent == []
    assert one.stand.session().blockers
    told = await requests.explain(one.stand.desk, one.stand.alice, "7")
    assert told.guard.startswith("blocked: io-uring")
    one.node.blockers = ()
    await one.stand.until(State.WARNED, 300)


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


async def test_failures_lead_to_a_cool_down(life: Any) -> None:
    one = await life().warned()
    one.node.hibernate = Outcome.FAILED
    await one.stand.until(State.ACTIVE, 30)
    await one.pass_time(60)
    assert one.job.comment == "my notebook"
    await one.pass_time(1500)
    assert one.state is State.ACTIVE
    told = await requests.explain(one.stand.desk, one.stand.alice, "7")
    assert told.guard.startswith("cool-down: ")


async def test_after_a_use_that_only_its_agent_saw_the_window_begins_anew(life: Any) -> None:
    one = await life().warned()
    one.node.hibernate = Outcome.CANCELLED
    await one.stand.until(State.ACTIVE, 30)
    cancelled = one.world.time
    await one.stand.until(State.WARNED, 100)
    assert one.world.time - cancelled >= WINDOW


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
    limits = Limits(brake_least=2, brake_keeps=0.5)
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


async def test_the_brake_takes_warnings_back(life: Any) -> None:
    one = await life().warned()
    await requests.set_brake(one.stand.desk, one.stand.root, "new kernel")
    await one.pass_time(20)
    assert one.state is State.ACTIVE
    assert "new kernel" in one.stand.session().reason
    await one.stand.hibernate()
    await one.stand.until(State.HIBERNATED)


async def test_a_busy_kernel_without_work_is_reported(life: Any) -> None:
    one = await life(idle=with_idle(busy_report=1000.0)).start()
    one.node.readings["jupyter"] = Reading(1.0, what="kernel 3f2a busy")
    await one.pass_time(1500)
    assert one.state is State.ACTIVE
    (note,) = [e for e in one.stand.journal.events(limit=100) if e.kind == "busy-without-work"]
    assert "kernel 3f2a busy" in note.reason


async def test_owners_hibernate_wins_over_a_warning(life: Any) -> None:
    one = await life().warned()
    await one.stand.hibernate()
    await one.stand.until(State.HIBERNATED)
    assert one.job.comment.startswith("hibernated ")
    await one.stand.restore()
    await one.stand.until(State.ACTIVE)
    await one.pass_time(30)
    assert one.job.comment == "my notebook"


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
            _report(one)
        return await detail(job_id)

    monkeypatch.setattr(one.world, "detail", slow)
    await one.pass_time(GRACE + 60)
    assert used
    assert one.state is State.ACTIVE
    assert "deadline-passed" not in one.kinds()


async def test_what_the_agent_saw_in_use_is_idle_no_more(life: Any) -> None:
    one = await life().warned()
    one.node.hibernate = Outcome.CANCELLED
    while "deadline-passed" not in one.kinds():
        await one.stand.turn()
    await one.stand.until(State.ACTIVE)
    await one.pass_time(WINDOW / 2)
    assert one.kinds().count("idle-confirmed") == 1
