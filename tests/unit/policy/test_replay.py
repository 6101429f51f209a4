"""A replay does what the controller does: window, guards, warning, grace, hibernation, return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from slurm_reclaim.config.schema import Config, Desk, Idle, Limits, Rule, Seconds
from slurm_reclaim.model.sample import Reading, Sample
from slurm_reclaim.model.trace import Entry, Header, Label, Measured, Return, Watched
from slurm_reclaim.policy.outcome import outcome
from slurm_reclaim.policy.replay import Kind, Replay

T = 1_800_000_000.0
MINUTE = 60.0
REST = dict.fromkeys(("cpu", "io", "network", "terminal"), Reading(0.0))
BUSY = {**REST, "cpu": Reading(1.0)}


def at(minutes: float) -> float:
    return T + minutes * MINUTE


def run(
    plan: list[tuple[str, float]],
    config: Config | None = None,
    truth: tuple[Label | Return, ...] = (),
    *,
    watched: Watched | None = None,
    complete: bool = False,
) -> Replay:
    """`plan`: what goes on, and until which minute; "blind" knows no CPU, "hole" nothing."""
    replay = Replay(config or Config())
    replay.take(Header("lab", complete=complete))
    replay.take(watched or Watched("s", tres="cpu=2", started=T))
    for entry in truth:
        replay.take(entry)
    for entry in samples(plan):
        replay.take(entry)
    return replay


def samples(plan: list[tuple[str, float]], session: str = "s") -> Iterator[Entry]:
    now = 0.0
    for what, until in plan:
        while now < until:
            now += 0.5
            if what == "hole":
                continue
            readings = {"rest": REST, "busy": BUSY, "blind": {**REST, "cpu": Reading(None)}}[what]
            yield Measured(session, Sample(at(now), 30.0, readings))


def story(replay: Replay) -> list[tuple[str, float]]:
    """Acts with their minutes."""
    return [(act.kind.value, (act.at - T) / MINUTE) for act in replay.acts]


def test_the_whole_way_and_back() -> None:
    replay = run([("busy", 10), ("rest", 200), ("busy", 210), ("rest", 290)])
    told = story(replay)
    assert [kind for kind, _ in told] == [
        "warned", "hibernated", "returned", "warned", "hibernated",
    ]  # fmt: skip
    minutes = [minute for _, minute in told]
    # CPU is an average over a minute: use runs out a little later than it ends.
    assert minutes[0] == pytest.approx(55, abs=1.1)
    assert minutes[1] == minutes[0] + 15
    assert minutes[2] == pytest.approx(200, abs=0.6)
    assert minutes[3] == pytest.approx(255, abs=1.1)
    found = outcome(replay)
    assert found.freed == pytest.approx(
        (minutes[2] - minutes[1] + 290 - minutes[4]) * MINUTE, abs=90
    )
    assert [absence.returned for absence in found.absences] == [True, False]
    assert found.surprised == ()


def test_use_within_the_grace_withdraws_the_warning_and_starts_the_window_anew() -> None:
    told = story(run([("rest", 50), ("busy", 51), ("rest", 200)]))
    assert [kind for kind, _ in told] == ["warned", "withdrawn", "warned", "hibernated"]
    assert told[1][1] == pytest.approx(50.5)
    assert told[2][1] == pytest.approx(51 + 45, abs=1.1)


def test_a_return_in_the_very_moment_of_the_deadline_wins() -> None:
    back = Label("s", at(60), at(70), "work", True)
    replay = run([("rest", 60), ("busy", 70)], truth=(back,), complete=True)
    assert [kind for kind, _ in story(replay)] == ["warned", "withdrawn"]


def test_whoever_is_back_within_a_quarter_of_an_hour_was_surprised() -> None:
    replay = run([("rest", 70), ("busy", 80)], truth=(Return("s", at(70)),), complete=True)
    (absence,) = outcome(replay).surprised
    assert absence.end == at(70)
    late = run([("rest", 76), ("busy", 80)], truth=(Return("s", at(76)),), complete=True)
    assert outcome(late).surprised == ()


def test_where_all_is_known_noise_is_no_return() -> None:
    plan = [("rest", 80), ("busy", 82), ("rest", 120)]
    assert "returned" in dict(story(run(plan)))
    assert "returned" not in dict(story(run(plan, complete=True)))


def test_nothing_follows_from_what_is_not_known() -> None:
    assert story(run([("blind", 300)])) == []
    assert story(run([("rest", 44), ("hole", 52), ("rest", 90)])) == []
    told = story(run([("rest", 50), ("blind", 62), ("rest", 120)]))
    assert told[0][0] == "warned"
    # More than the gap is unknown: the clock begins anew, and what was said is void.
    assert told[1] == ("withdrawn", pytest.approx(62.5, abs=0.1))
    assert told[2][1] > 62 + 45 - 1


def test_a_warning_is_not_outlived_by_what_is_unknown() -> None:
    told = story(run([("rest", 50), ("blind", 90)]))
    assert told == [("warned", 45), ("withdrawn", 65.5)]


def test_a_restored_session_is_young_again_and_its_clock_begins_anew() -> None:
    config = Config(idle=Idle(min_age=Seconds(7200)))
    told = story(run([("rest", 180), ("busy", 181), ("rest", 400)], config))
    assert [kind for kind, _ in told[:4]] == ["warned", "hibernated", "returned", "warned"]
    assert told[3][1] == pytest.approx(180 + 120, abs=1)
    # Back within moments, and nothing is done: what was quiet before does not count.
    back = Return("s", at(62))
    told = story(run([("rest", 115)], truth=(back,), complete=True))
    assert told[2] == ("returned", 62)
    assert told[3] == ("warned", 62 + 45)


def test_a_deadline_within_a_short_gap_waits_for_its_end() -> None:
    told = story(run([("rest", 58), ("blind", 62), ("rest", 120)]))
    assert told[1] == ("hibernated", 62.5)


def test_young_exempt_and_blocked_sessions() -> None:
    config = Config(idle=Idle(min_age=Seconds(7200)))
    assert story(run([("rest", 140)], config))[0] == ("warned", 120)
    off = Config(rule=[Rule(user=["alice"], mode="off")])
    assert story(run([("rest", 140)], off, watched=Watched("s", user="alice"))) == []
    assert story(run([("rest", 140)], off, watched=Watched("s", user="bob"))) != []
    told = story(run([("rest", 140)], watched=Watched("s", blockers=("io-uring: python3",))))
    assert told == [("blocked", 45), ("blocked", 105)]
    notify = Config(rule=[Rule(action="notify")])
    assert story(run([("rest", 300)], notify)) == [("notified", 45)]


def test_shadow_is_replayed_as_if_it_acted_and_off_is_not() -> None:
    assert Config().mode == "shadow"
    assert "hibernated" in dict(story(run([("rest", 90)])))
    assert story(run([("rest", 90)], Config(mode="off"))) == []


def test_terms_follow_the_hour() -> None:
    desk = Desk(timezone="UTC", hours="Mon-Sun 00:00-09:00", window=Seconds(36000),
                window_off=Seconds(600))  # fmt: skip
    # T is 08:00 UTC; the hour in which nothing is done ends at 09:00.
    told = story(run([("rest", 120)], Config(desk=[desk])))
    assert told[0] == ("warned", pytest.approx(60, abs=0.6))


def crowd(config: Config, count: int) -> Replay:
    replay = Replay(config)
    replay.take(Header("lab"))
    plans = []
    for number in range(count):
        name = f"s{number}"
        replay.take(Watched(name, node="n1", started=T))
        plans.append(samples([("rest", 90)], name))
    for row in zip(*plans, strict=True):
        for entry in row:
            replay.take(entry)
    return replay


def test_limits_per_node_and_per_hour() -> None:
    config = Config(limits=Limits(per_node=2))
    times = [minute for kind, minute in story(crowd(config, 5)) if kind == "hibernated"]
    assert times == [60, 60, 61, 61, 62]
    config = Config(limits=Limits(per_hour=3, per_node=9))
    assert [kind for kind, _ in story(crowd(config, 5))].count("hibernated") == 3
    free = Replay(config, limited=False)
    assert not free._limited


def test_the_brake_stops_everything() -> None:
    config = Config(limits=Limits(brake_least=3, per_node=9))
    replay = Replay(config)
    replay.take(Header("lab"))
    plan = [("rest", 50), ("busy", 51), ("rest", 200)]
    for number in range(4):
        replay.take(Watched(f"s{number}", started=T))
    for row in zip(*(samples(plan, f"s{n}") for n in range(4)), strict=True):
        for entry in row:
            replay.take(entry)
    kinds = [act.kind for act in replay.acts]
    assert kinds.count(Kind.BRAKE) == 1
    assert Kind.HIBERNATED not in kinds
    assert "3 of 3 warnings" in replay.braked
    # One session after the other is no order of time: nothing to limit by.
    apart = Replay(config)
    apart.take(Header("lab", by_session=True))
    assert not apart._limited


def test_a_sample_that_was_told_twice_counts_once() -> None:
    replay = Replay(Config())
    replay.take(Header("lab"))
    replay.take(Watched("s"))
    for entry in samples([("rest", 10)]):
        replay.take(entry)
        replay.take(replace(entry))
    assert replay.seats["s"].seconds == 600
