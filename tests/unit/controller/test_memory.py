"""What a controller leaves to the next one: evidence, and what happened lately."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from slurm_reclaim.daemon import recovery
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.lifecycle import Fact
from tests.unit.controller.life import Life
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World


class Watched:
    """The journal's keep_evidence, with what it was given and in which thread."""

    def __init__(self, stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kept: list[tuple[set[int], set[int]]] = []
        self.threads: set[int] = set()
        keep = stand.journal.keep_evidence

        def seen(changed: Any, gone: Any) -> None:
            self.kept.append(({id.job_id for id in changed}, {id.job_id for id in gone}))
            self.threads.add(threading.get_ident())
            keep(changed, gone)

        monkeypatch.setattr(stand.journal, "keep_evidence", seen)


async def test_only_what_changed_is_written_and_beside_the_loop(
    world: World, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.submit(8)
    await stand.turns(10)
    assert {id.job_id for id in stand.journal.evidence()} == {7, 8}
    watched = Watched(stand, monkeypatch)
    for agent in world.agents.values():
        if 8 in agent.trees:
            agent.measures = False
    quiet = next(agent for agent in world.agents.values() if 7 in agent.trees)
    quiet.measures = True
    if 8 in quiet.trees:
        quiet.trees[8].living = quiet.trees[8].living.DUMPING
    await stand.turns(14)
    assert watched.kept
    assert watched.kept[1:] == [({7}, set())] * (len(watched.kept) - 1)
    assert threading.get_ident() not in watched.threads
    watched.kept.clear()
    world.finish(7)
    await stand.turns(8)
    assert (set(), {7}) in watched.kept
    assert {id.job_id for id in stand.journal.evidence()} == {8}
    watched.kept.clear()
    await stand.turns(14)
    assert watched.kept == []


async def test_what_counts_no_more_is_gone_after_a_restart(life: Callable[..., Life]) -> None:
    one = await life().start()
    await one.pass_time(120)
    stand = one.stand
    await stand.reboot()
    (id,) = stand.desk.evidence
    del stand.desk.evidence[id]  # as after a use that only its agent saw
    one.node.measures = False
    await one.pass_time(80)
    assert stand.journal.evidence() == {}


async def test_only_what_happened_lately_is_read(
    world: World, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "FIRST_LOOK", 10)
    asked = []
    events = stand.journal.events

    def counted(**words: Any) -> Any:
        asked.append(words["limit"])
        return events(**words)

    def happened(at: float) -> None:
        stand.journal.note(Event(at, Fact.DEADLINE_PASSED.value, "", "s", before="WARNED", uid=1))

    for number in range(11):
        stand.journal.note(Event(world.time - 90_000.0, "note", str(number)))
    for ago in (90_000.0, 7200.0, 1800.0, 10.0):
        happened(world.time - ago)
    await stand.reboot()
    assert stand.desk.history.begun(0.0) == 2
    monkeypatch.setattr(stand.journal, "events", counted)
    assert len(recovery._lately(stand.desk)) < 10
    assert asked == [10]
    for number in range(11):
        stand.journal.note(Event(world.time, "note", str(number)))
    asked.clear()
    assert len([e for e in recovery._lately(stand.desk) if e.kind == Fact.DEADLINE_PASSED]) == 2
    assert asked == [10, 40]
