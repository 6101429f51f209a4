"""A few fixed points of the crash matrix (tests/crash), and a sample that differs from day to day.

RECLAIM_CRASH_MINUTES is how long the sample may take; RECLAIM_SEED chooses another one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import Lab
from tests.crash import world
from tests.crash.lane import Lane, Tried
from tests.crash.matrix import Matrix, count_calls
from tests.crash.points import (
    EIO,
    ENOSPC,
    KILL,
    STOP,
    UNHEARD,
    Counts,
    Point,
    around,
    every,
    sample,
)
from tests.crash.rig import Rig

pytestmark = pytest.mark.cluster
MINUTES = float(os.environ.get("RECLAIM_CRASH_MINUTES", "2"))
MIDDLE = "whatever comes in the middle"
SEED = int(os.environ.get("RECLAIM_SEED", "0")) or int(time.time() // 86400)


@pytest.fixture(scope="module")
def rig(lab: Lab) -> Iterator[Rig]:
    rig = Rig(lab.name)
    rig.install()
    try:
        yield rig
    finally:
        rig.uninstall()


@pytest.fixture(scope="module")
def lane(rig: Rig) -> Iterator[Lane]:
    lane = Lane(rig, rig.nodes[0])
    yield lane
    lane.start_over()


@pytest.fixture(scope="module")
def counts(lane: Lane) -> Counts:
    return count_calls(lane)


def the_call(lane: Lane, program: str, verb: str, fault, words: str) -> int:
    """The number of the first call that looks like this, among those that `fault` counts."""
    control = lane.control(program)
    lane.ready(verb)
    control.arm()
    lane.clean(verb)
    control.disarm()
    calls = [text for kind, text in control.calls() if kind & fault.kinds]
    if words == MIDDLE:
        return len(calls) // 2
    found = [n for n, text in enumerate(calls, 1) if words in text]
    assert found, f"no call like {words!r} in {control.calls()}"
    return found[0]


@pytest.mark.parametrize(
    ("program", "verb", "fault", "words"),
    [
        ("reclaim-agent", "hibernate", KILL, "rename"),
        ("reclaim-agent", "hibernate", KILL, "manifest.json"),
        ("reclaim-agent", "hibernate", ENOSPC, "manifest.json"),
        ("reclaim-agent", "hibernate", UNHEARD, "recv"),
        ("reclaim-agent", "restore", KILL, "reclaim-exec"),
        ("reclaim-agent", "restore", EIO, "/sessions/"),
        ("criu", "hibernate", KILL, MIDDLE),
        ("reclaimd", "hibernate", KILL, "journal.sqlite-wal"),
        ("reclaimd", "restore", ENOSPC, "journal.sqlite-wal"),
    ],
)
def test_at_a_known_call(lane: Lane, program: str, verb: str, fault, words: str) -> None:
    number = the_call(lane, program, verb, fault, words)
    tried = lane.try_point(Point(program, verb, fault, number))
    assert tried.outcome in ("alive", "restorable"), f"{tried.point} [{tried.call}] {tried.note}"


@pytest.mark.parametrize("event", ["slurmctld dead for 4 s", "kill -9 of reclaim-relay"])
def test_while_a_session_is_restored(lane: Lane, event: str) -> None:
    number = the_call(lane, "reclaim-agent", "restore", STOP, "reclaim-exec")
    tried = lane.try_point(Point("reclaim-agent", "restore", STOP, number, event))
    assert tried.outcome in ("alive", "restorable"), f"{tried.point} [{tried.call}] {tried.note}"


def test_a_sample_of_the_matrix(
    rig: Rig, counts: Counts, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[Tried] = []
    matrix = Matrix(rig, told.append, MINUTES)
    points = [*every(counts, SEED), *around(counts, world.EVENTS, 4)]
    matrix.run(sample(points, SEED))
    with capsys.disabled():
        print(f"\ncrash matrix, RECLAIM_SEED={SEED}\n{matrix.table()}")
    assert not matrix.lost(), "\n".join(f"{t.point} [{t.call}] {t.note}" for t in matrix.lost())
    assert any(tried.outcome for tried in told)
