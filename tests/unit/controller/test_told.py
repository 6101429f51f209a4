"""What became of every notice is recorded, not only of warnings."""

from __future__ import annotations

from typing import Any

from slurm_reclaim.config.schema import Limits, Notices, Rule
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.sample import Reading
from tests.unit.controller.life import Life, with_idle


def told(one: Life) -> list[tuple[str, list[str], list[str]]]:
    """(notice, told by, failed) of each, oldest first."""
    found = [e for e in one.stand.journal.events(limit=1000) if e.kind == "notice" and e.session]
    return [(e.details["notice"], e.details["told"], e.details["failed"]) for e in found]


async def test_each_way_of_each_notice(life: Any) -> None:
    one = await life().warned()
    one.node.readings["cpu"] = Reading(2.0)
    await one.stand.until(State.ACTIVE)
    one.node.readings["cpu"] = Reading(0.0)
    await one.pass_time(40)
    assert sorted(told(one)) == [("withdrawn", ["mail"], []), ("withdrawn", ["terminal"], [])]
    await one.stand.until(State.HIBERNATED, 200)
    await one.pass_time(40)
    assert told(one)[2:] == [("hibernated", ["mail"], [])]


async def test_who_could_not_be_told(life: Any) -> None:
    one = await life(rule=[Rule(user=["alice"], action="notify")]).start()
    one.stand.post.refuses = "550 no such user"
    one.node.terminals = 0
    await one.pass_time(1500)
    assert sorted(told(one)) == [
        ("idle", [], ["mail: 550 no such user"]),
        ("idle", [], ["terminal: no terminal took it"]),
    ]


async def test_the_same_notice_of_another_day_is_recorded_again(life: Any) -> None:
    notice = Notices(channels=["mail"], enough=["mail"])
    one = await life(rule=[Rule(user=["alice"], action="notify")], notice=notice).start()
    for _ in range(2):
        await one.pass_time(1500)
        one.node.readings["cpu"] = Reading(2.0)
        await one.pass_time(100)
        one.node.readings["cpu"] = Reading(0.0)
    assert told(one) == [("idle", ["mail"], [])] * 2


async def test_admins_who_could_not_be_told_of_the_brake(life: Any) -> None:
    limits = Limits(brake_least=1, brake_owners=1, brake_keeps=0.5)
    one = await life(limits=limits).warned()
    one.stand.post.refuses = "the relay is away"
    one.node.readings["terminal"] = Reading(1.0)
    await one.pass_time(60)
    reasons = [e.reason for e in one.stand.journal.events(limit=1000) if e.kind == "notice"]
    assert "brake: not told by mail: the relay is away" in reasons


async def test_who_could_not_be_told_is_not_told_again_by_what_does_not_count(life: Any) -> None:
    """One warning in a span of idleness: what follows are tries by the channels that count."""
    notice = Notices(channels=["terminal", "comment", "mail"], enough=["terminal"])
    one = await life(notice=notice, idle=with_idle(cooldown=300.0)).start()
    one.node.terminals = 0
    await one.pass_time(2500)
    assert one.stand.post.kinds() == ["warning", "withdrawn"]
    assert one.kinds().count("idle-confirmed") >= 3, "it is tried again"
    assert one.job.comment == "my notebook"
    one.node.readings["cpu"] = Reading(2.0)
    await one.pass_time(100)
    one.node.readings["cpu"] = Reading(0.0)
    await one.pass_time(1200)
    assert one.stand.post.kinds() == ["warning", "withdrawn"] * 2, "another span"
    one.node.terminals = 1
    await one.stand.until(State.WARNED, 200)
