"""GPUs in the controller's words: what was held and freed, upgrades of drivers, and what they
cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_reclaim.errors import BadRequest, Refused
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.checkpoint import GpuCard, GpuNeeds
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.notice import NoticeKind
from slurm_reclaim.model.sample import GpuHeld
from slurm_reclaim.model.upgrade import Upgrade
from slurm_reclaim.stages import requests, stranded
from slurm_reclaim.stages.upgrade import forecast
from tests.unit.controller.life import WINDOW
from tests.unit.controller.simulated import FIT, NEEDS
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World

GIB = 1 << 30
HELD = int(71.2 * GIB)
OLD, NEW = "580.65.06", "590.44.01"
CARD = GpuCard("GPU-a", "A100", 80 * GIB)
CUDA = replace(NEEDS, gpu=GpuNeeds(OLD, (replace(CARD, used=HELD),), (310,)))


@pytest.fixture(autouse=True)
def _nodes_with_gpus(world: World) -> None:
    for agent in world.agents.values():
        agent.facts = replace(FIT, gpus=(CARD,), gpu_driver=OLD)
        agent.needs = CUDA
        agent.gpus = (GpuHeld("GPU-a", "A100", 0, 80 * GIB, HELD, 1),)


def driver(world: World, version: str, *nodes: str) -> None:
    for name in nodes or world.agents:
        facts = world.agents[name].facts
        world.agents[name].facts = replace(facts, gpu_driver=version)


async def test_what_is_held_and_what_was_freed_is_told(world: World, stand: Stand) -> None:
    await stand.turn()
    running = await requests.session(stand.desk, stand.alice, "7")
    assert running.vram == HELD
    await stand.hibernate()
    asleep = await stand.until(State.HIBERNATED)
    assert asleep.freed_gpu == HELD
    assert "freed 71.2 GiB VRAM" in asleep.reason
    assert "freed 71.2 GiB VRAM" in world.jobs_by_id[7].comment
    assert "freed 71.2 GiB VRAM" in world.jobs_by_id[7].admin_comment
    events = {event.kind: event for event in stand.journal.events(job_id=7)}
    for kind in ("checkpoint-committed", "requeue-observed"):
        assert events[kind].details["freed_gpu"] == HELD
        assert "freed 71.2 GiB VRAM" in events[kind].reason
    # what its node held is not held any more
    assert (await requests.session(stand.desk, stand.alice, "7")).gpus == ()


async def test_an_agent_that_only_found_the_commit_tells_it_too(
    world: World, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "tells_freed", False)
    await stand.hibernate()
    assert (await stand.until(State.HIBERNATED)).freed_gpu == HELD


async def test_a_session_without_gpus_says_nothing_of_them(world: World, stand: Stand) -> None:
    for agent in world.agents.values():
        agent.needs, agent.gpus = NEEDS, ()
    await stand.hibernate()
    asleep = await stand.until(State.HIBERNATED)
    assert asleep.freed_gpu == 0
    assert "VRAM" not in asleep.reason + world.jobs_by_id[7].comment


async def asleep(stand: Stand) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)


@pytest.mark.parametrize(
    ("upgrade", "lost", "left", "why"),
    [
        (Upgrade(driver=OLD), None, "", ""),
        (Upgrade(driver=NEW), True, "", f"n1: its NVIDIA driver is {NEW}, the checkpoint has"),
        (Upgrade(driver=NEW, nodes="n2"), False, "n1", f"n2: its NVIDIA driver is {NEW}"),
        (Upgrade(driver=NEW, nodes="n[1-2]"), True, "", "n1: its NVIDIA driver"),
        (Upgrade(kernel="6.19.1"), None, "", ""),
        (Upgrade(kernel="5.14.0"), True, "", "its kernel 5.14.0 is older than 6.18.5-1"),
        (Upgrade(criu="4.3"), None, "", ""),
        (Upgrade(criu="4.1"), True, "", "its CRIU 4.1 is older"),
        (Upgrade(glibc="2.42"), True, "", "its glibc is 2.42"),
        # the same version is another build, as after a security fix
        (Upgrade(glibc="2.41"), True, "", "the checkpoint has build cafe mapped"),
    ],
)
async def test_what_an_upgrade_would_cost(
    stand: Stand, upgrade: Upgrade, lost: bool | None, left: str, why: str
) -> None:
    await asleep(stand)
    found = await forecast(stand.desk, upgrade)
    assert found.looked == 1
    if lost is None:
        assert found.affected == ()
        return
    (one,) = found.affected
    assert (one.job, one.user, one.lost, one.left) == ("7", "alice", lost, left)
    assert one.vram == HELD
    assert why in one.why


async def test_sessions_that_run_or_are_lost_already_cost_nothing(
    world: World, stand: Stand
) -> None:
    await stand.turn()
    assert (await forecast(stand.desk, Upgrade(driver=NEW))).looked == 0
    await asleep(stand)
    driver(world, NEW)
    await stand.turn()
    assert (await forecast(stand.desk, Upgrade(driver="595.1"))).affected == ()


@pytest.mark.parametrize(
    ("upgrade", "words"),
    [
        (Upgrade(), "nothing is to be upgraded"),
        (Upgrade(nodes="n[1", driver=NEW), "no list of nodes"),
        (Upgrade(nodes="n1,n9", driver=NEW), "no node n9"),
    ],
)
async def test_upgrades_that_are_none(stand: Stand, upgrade: Upgrade, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        await forecast(stand.desk, upgrade)


async def test_owners_are_told_before_an_upgrade(world: World, stand: Stand) -> None:
    await asleep(stand)
    planned = Upgrade(driver=NEW, notify=True, deadline=world.time + 86400)
    (one,) = (await forecast(stand.desk, planned)).affected
    assert one.told == ("mail",)
    (notice,) = stand.post.sent
    assert notice.kind is NoticeKind.UPGRADE
    assert (notice.user, notice.deadline, notice.vram) == ("alice", planned.deadline, HELD)
    assert notice.reason == f"NVIDIA driver {NEW} on all nodes"
    (event,) = [e for e in stand.journal.events(job_id=7) if e.kind == "upgrade-announced"]
    assert "told by mail" in event.reason
    stand.post.refuses = "no such mailbox"
    (one,) = (await forecast(stand.desk, planned)).affected
    assert one.told == ()
    assert one.failed == ("mail: no such mailbox",)


async def test_nobody_is_told_of_what_is_not_lost(stand: Stand) -> None:
    await asleep(stand)
    await forecast(stand.desk, Upgrade(driver=NEW, nodes="n2", notify=True))
    await forecast(stand.desk, Upgrade(driver=NEW))
    assert stand.post.sent == []


async def test_an_upgrade_that_was_seen_is_told_once(world: World, stand: Stand) -> None:
    await asleep(stand)
    driver(world, NEW, "n1")
    await stand.turns(3)
    assert stand.session().unfit is None  # type: ignore[union-attr]
    driver(world, NEW)
    await stand.turns(2)
    marked = stand.session()
    assert marked is not None
    assert marked.unfit is not None
    assert f"n1 and 1 more: its NVIDIA driver is {NEW}" in marked.unfit.reason
    assert stand.post.kinds() == []  # a node may be half way through its upgrade
    await stand.turns(4, stranded.TELL_AFTER / 3)
    assert sorted(stand.post.kinds()) == ["stranded", "unrestorable"]
    to_admins = next(n for n in stand.post.sent if n.kind is NoticeKind.STRANDED)
    assert to_admins.user == ""
    assert "1 hibernated session can't be restored by any node: job 7 (alice)" in to_admins.reason
    await stand.reboot()
    await stand.turns(4, stranded.TELL_AFTER)
    assert len(stand.post.sent) == 2  # nor again by a new controller
    driver(world, OLD, "n2")
    await stand.turns(2)
    assert stand.session().unfit is None  # type: ignore[union-attr]
    assert "restorable-again" in stand.kinds()
    await stand.restore()
    await stand.until(State.ACTIVE)


@pytest.mark.parametrize(
    "trouble",
    [
        {"store_ok": False, "store_problem": "not mounted"},
        {"gpus": (), "gpu_driver": "", "gpu_problem": "NVML is starting"},
        {"gpu_problem": "no way to call the API"},
        {"plugin_seen": False},
    ],
)
async def test_what_may_pass_by_itself_is_told_to_nobody(
    world: World, stand: Stand, trouble: dict[str, object]
) -> None:
    await asleep(stand)
    for agent in world.agents.values():
        agent.facts = replace(agent.facts, **trouble)  # type: ignore[arg-type]
    await stand.turns(4, stranded.TELL_AFTER)
    assert stand.session().unfit is None  # type: ignore[union-attr]
    assert stand.post.kinds() == []


async def test_silent_nodes_count_by_what_they_last_said(world: World, stand: Stand) -> None:
    await asleep(stand)
    world.agents["n2"].up = False
    driver(world, NEW, "n1")
    await stand.turns(4, stranded.TELL_AFTER)
    assert stand.session().unfit is None  # type: ignore[union-attr]
    assert (await forecast(stand.desk, Upgrade(driver="595.1", nodes="n2"))).affected[0].lost


async def test_a_restore_names_what_is_lacking(world: World, stand: Stand) -> None:
    await asleep(stand)
    driver(world, NEW)
    world.agents["n2"].facts = replace(world.agents["n2"].facts, gpus=())
    await stand.turns(2)
    with pytest.raises(Refused) as refused:
        await requests.ask_restore(stand.desk, stand.alice, "7")
    assert f"n1: its NVIDIA driver is {NEW}" in refused.value.message
    assert "n2: it has no GPU, the checkpoint needs 1 x A100" in refused.value.message


@pytest.mark.parametrize("name", ["mig", "mps", "gpu-share", "gpu-peers", "gpu-driver"])
async def test_what_can_not_be_saved_is_known_long_before_a_warning(life: Any, name: str) -> None:
    """C47: observed and shown, and never warned of what can't be carried out."""
    one = await life().start()
    one.node.blockers = (Blocker(name, "the job's GPU can't be saved"),)
    one.node.looked = one.world.time
    await one.pass_time(30)
    running = one.stand.session()
    assert running.state is State.ACTIVE
    assert running.blockers == (f"{name}: the job's GPU can't be saved",)
    (event,) = [e for e in one.stand.journal.events(job_id=7) if e.kind == "not-hibernatable"]
    assert event.details["blockers"] == [name]
    await one.pass_time(2 * WINDOW)
    assert one.state is State.ACTIVE
    assert "warning" not in one.stand.post.kinds()
    # and without it, it would have been
    one.node.blockers = ()
    await one.stand.until(State.WARNED, 300)
