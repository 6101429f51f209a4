"""Shadow mode says what prod would do: also where that is nothing, and why."""

from __future__ import annotations

from typing import Any

from slurm_reclaim.config.schema import Rule
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.sample import GpuHeld
from slurm_reclaim.stages import requests
from tests.unit.controller.life import Life, with_idle

TRACED = Blocker("traced", "python (300) is traced by gdb")


def said(one: Life) -> list[tuple[str, str]]:
    """(action, guard) of each event of the stage, oldest first."""
    found = [e for e in one.stand.journal.events(limit=1000) if e.kind == "shadow"]
    assert {event.details["stage"] for event in found} <= {"interactive_reclaim"}
    return [(str(e.details["action"]), str(e.details.get("guard", ""))) for e in found]


WOULD = ("would_hibernate_session", "")


def would_not(guard: str) -> tuple[str, str]:
    return ("would_not_hibernate_session", guard)


async def test_what_its_agent_has_found_in_the_way(life: Any) -> None:
    one = await life(mode="shadow").start()
    one.node.looked = one.world.time
    one.node.blockers = (TRACED,)
    await one.pass_time(1500)
    assert said(one) == [would_not("blocked")]
    told = await requests.explain(one.stand.desk, one.stand.alice, "7")
    assert told.guard.startswith("blocked: traced")
    one.node.blockers = ()
    await one.pass_time(600)
    assert said(one) == [would_not("blocked"), WOULD], "gone while it stays idle"
    assert one.stand.post.sent == []
    assert one.state is State.ACTIVE


async def test_a_guard_that_passes(life: Any) -> None:
    one = await life(mode="shadow", idle=with_idle(min_age=1500.0)).start()
    await one.pass_time(1200)
    assert said(one) == [would_not("too-young")]
    await one.pass_time(1200)
    assert said(one) == [would_not("too-young"), WOULD]


async def test_what_is_in_the_way_of_a_hibernation_is_not_in_that_of_a_notice(life: Any) -> None:
    one = await life(mode="shadow", rule=[Rule(user=["alice"], action="notify")]).start()
    one.node.looked = one.world.time
    one.node.blockers = (TRACED,)
    await one.pass_time(1500)
    assert said(one) == [WOULD]


async def test_gpu_memory_that_is_held_is_told(life: Any) -> None:
    one = await life(mode="shadow").start()
    one.node.gpus = (GpuHeld("GPU-a", "A100", 0, 80 << 30, 40 << 30, 1),)
    await one.pass_time(1500)
    (event,) = [e for e in one.stand.journal.events(limit=1000) if e.kind == "shadow"]
    assert event.details["vram_bytes"] == 40 << 30
    assert "40.0 GiB of GPU memory held" in event.reason


async def test_in_prod_explain_names_what_will_be_in_the_way(life: Any) -> None:
    one = await life().start()
    one.node.looked = one.world.time
    one.node.blockers = (TRACED,)
    await one.pass_time(100)
    told = await requests.explain(one.stand.desk, one.stand.alice, "7")
    assert told.guard == "blocked: traced: python (300) is traced by gdb"
    assert told.follows.endswith("at the earliest; blocked: traced: python (300) is traced by gdb")
