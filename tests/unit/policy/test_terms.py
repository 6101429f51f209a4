"""Which terms a session falls under: rules, desks, hours, sweeps, cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from slurm_reclaim.config.schema import Config, Cost, Desk, Idle, Rule
from slurm_reclaim.model.week import last_time, local, parse_hours, parse_time, parse_zone
from slurm_reclaim.policy.terms import Subject, gres_names, has_gpu, terms

BERLIN = "Europe/Berlin"
ALICE = Subject("hpc", "gpu", "normal", "bio", "alice", "spawner-jupyterhub",
                "cpu=2,mem=4G,node=1,billing=8,gres/gpu=1,gres/gpu:a100=1")  # fmt: skip


def at(text: str, zone: str = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


NOON = at("2026-12-02 12:00")  # a Wednesday


def of(now: float = NOON, subject: Subject = ALICE, **tables: object):
    return terms(Config(mode="prod", **tables), subject, now)  # type: ignore[arg-type]


def test_without_rules_the_defaults_hold() -> None:
    found = of()
    assert (found.mode, found.action, found.window, found.grace) == ("prod", "hibernate", 2700, 900)
    assert (found.rule, found.desk, found.why) == ("", "", "idle.window")
    assert found.yardstick.floors["gpu"] == 1.0


@pytest.mark.parametrize(
    ("key", "hit", "miss"),
    [
        ("cluster", "hpc", "other"), ("partition", "g*", "cpu"), ("qos", "normal", "high"),
        ("account", "bio", "phys"), ("user", "al?ce", "bob"), ("job_name", "spawner-*", "x*"),
        ("gres", "gpu:a100*", "gpu:h100*"), ("gres", "gres/gpu", "shard"),
    ],
)  # fmt: skip
def test_every_key_is_matched(key: str, hit: str, miss: str) -> None:
    rule = {"name": "r", "window": 60.0}
    assert of(rule=[Rule(**{key: [miss]}, **rule)]).window == 2700  # type: ignore[arg-type]
    assert of(rule=[Rule(**{key: [miss, hit]}, **rule)]).window == 60  # type: ignore[arg-type]


def test_all_keys_must_match_and_the_first_rule_wins() -> None:
    rules = [
        Rule(name="no", user=["alice"], account=["phys"], window=1.0),
        Rule(name="yes", user=["alice"], window=2.0, cpu_floor=0.5, optional=["gpu-pcie"]),
        Rule(name="late", user=["alice"], window=3.0),
    ]
    found = of(rule=rules, idle=Idle(optional=["network"]))
    assert (found.rule, found.window, found.why) == ("yes", 2.0, "its rule's window")
    assert found.yardstick.floors["cpu"] == 0.5
    assert found.yardstick.optional == {"gpu-pcie", "network"}
    assert of(rule=[Rule(user=["alice"])]).rule == "[[rule]] 1"


@pytest.mark.parametrize(
    ("cluster", "rule", "mode"),
    [("shadow", "prod", "shadow"), ("prod", "shadow", "shadow"), ("off", "prod", "off"),
     ("prod", "", "prod"), ("shadow", "off", "off")],
)  # fmt: skip
def test_a_rule_only_weakens(cluster: str, rule: str, mode: str) -> None:
    config = Config(mode=cluster, rule=[Rule(user=["alice"], mode=rule)])
    assert terms(config, ALICE, NOON).mode == mode


def test_rules_by_the_hour() -> None:
    rule = Rule(hours="Mon-Fri 22:00-06:00", timezone=BERLIN, window=60.0)
    assert of(at("2026-12-02 23:00"), rule=[rule]).window == 60
    assert of(at("2026-12-05 05:59"), rule=[rule]).window == 60, "Friday's night ends on Saturday"
    assert of(at("2026-12-05 06:00"), rule=[rule]).window == 2700
    assert of(at("2026-12-06 23:00"), rule=[rule]).window == 2700


DESK = Desk(
    name="wet lab", account=["bio"], timezone=BERLIN, hours="Mon-Fri 08:00-18:00",
    holidays=["2026-12-25"], window=7200.0, window_off=1200.0, grace_off=300.0,
    sweeps=["19:00", "Fri 17:00"], sweep_window=600.0,
)  # fmt: skip


def test_a_desk_has_its_own_working_week() -> None:
    found = of(desk=[DESK])
    assert (found.desk, found.window, found.grace) == ("wet lab", 7200, 900)
    off = of(at("2026-12-05 12:00"), desk=[DESK])
    assert (off.window, off.grace) == (1200, 300)
    assert of(at("2026-12-25 12:00"), desk=[DESK]).window == 1200, "a holiday"
    other = Subject("hpc", "gpu", "normal", "phys", "bob", "x")
    assert of(subject=other, desk=[DESK]).desk == ""


def test_a_sweep_holds_for_half_an_hour() -> None:
    swept = of(at("2026-12-02 19:05"), desk=[DESK])
    assert (swept.window, swept.why) == (600, "sweep of desk wet lab")
    assert of(at("2026-12-02 18:59"), desk=[DESK]).window == 1200
    assert of(at("2026-12-02 19:31"), desk=[DESK]).window == 1200
    assert of(at("2026-12-04 17:10"), desk=[DESK]).window == 600
    assert of(at("2026-12-03 17:10"), desk=[DESK]).window == 7200


def test_a_sweep_is_never_more_patient_than_the_desk() -> None:
    lazy = replace(DESK, sweep_window=9000.0)
    assert of(at("2026-12-02 19:05"), desk=[lazy]).window == 1200


def test_a_rules_window_goes_before_the_desks() -> None:
    found = of(desk=[DESK], rule=[Rule(user=["alice"], window=90.0, grace=30.0)])
    assert (found.window, found.grace, found.desk) == (90, 30, "wet lab")


def test_hours_follow_the_clock_on_the_wall_through_dst() -> None:
    """Berlin's clocks went forward on 2026-03-29 and back on 2026-10-25, both Sundays."""
    (span,) = parse_hours("Sun 02:15-03:30")
    zone = parse_zone(BERLIN)

    def holds(moment: float) -> bool:
        return span.holds(local(moment, zone), frozenset())

    forward = at("2026-03-29 01:59:59") + 1  # the next second reads 03:00
    assert local(forward, zone).hour == 3
    assert holds(forward)
    assert not holds(forward + 1800)
    first = at("2026-10-25 02:20")
    assert holds(first)
    assert holds(first + 3600), "half past two comes twice"
    desk = Desk(account=["bio"], timezone=BERLIN, sweeps=["02:30"], sweep_window=60.0)
    assert of(forward + 1800, desk=[desk]).window == 60, "a skipped time is reached at 03:30"


def test_days_of_sweeps_wrap_around_midnight() -> None:
    times = (parse_time("23:50"),)
    zone = parse_zone(BERLIN)
    now = at("2026-12-03 00:10")
    assert now - last_time(times, now, zone) == 20 * 60


@pytest.mark.parametrize("text", ["8-18", "Mon 25:00-26:00", "Mon-Fri", "Foo 08:00-09:00", "08:00"])
def test_hours_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected hours|no time of the day"):
        parse_hours(text)


def test_a_zone_that_is_none() -> None:
    with pytest.raises(ValueError, match="Europe/Berlin"):
        parse_zone("Mars/Olympus")
    with pytest.raises(ValueError, match="time zone"):
        parse_zone("../../etc/passwd")


@pytest.mark.parametrize(
    ("tres", "expected"),
    [
        ("cpu=1,gres/gpu=1", True), ("gres/gpu:a100=2", True), ("gres/shard=4", True),
        ("gres/mps=50", True), ("cpu=1,mem=1G", False), ("gres/gpu=0", False), ("", False),
        ("gres/lustre=1", False),
    ],
)  # fmt: skip
def test_jobs_with_a_gpu_need_its_signals(tres: str, expected: bool) -> None:
    """C41: by what was allocated, however it was asked for."""
    assert has_gpu(tres) is expected
    subject = Subject("hpc", "gpu", "normal", "bio", "alice", "x", tres)
    assert ("gpu" in of(subject=subject).yardstick.required) is expected


def test_gres_in_every_way_a_pattern_may_name_it() -> None:
    names = gres_names("cpu=1,gres/gpu:a100=2")
    assert {"gpu", "gpu:a100", "gpu:a100:2", "gres/gpu", "gres/gpu:a100:2"} <= set(names)


@pytest.mark.parametrize(
    ("price", "grace"), [(0.0, 900), (1.0, 300), (0.125, 900), (0.0625, 1800), (0.001, 3600)]
)
def test_grace_follows_the_cost_within_bounds(price: float, grace: float) -> None:
    """billing=8: at 1.0 it costs eight times par, an eighth of the grace, but at least 5 min."""
    cost = Cost(price=price, par=1.0, shortest=300.0, longest=3600.0)
    assert of(cost=cost).grace == grace
