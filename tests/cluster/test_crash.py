"""A few fixed points of the crash matrix (tests/crash), and a sample that differs from day to day.

RECLAIM_CRASH_MINUTES is how long the sample may take; RECLAIM_SEED chooses another one. On some
days it is of deletions, on some of an object store as the store, on most of all the rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.conftest import Lab
from tests.crash import expiry, remote, world
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
    beside,
    every,
    sample,
)
from tests.crash.rig import PLACE, Rig

pytestmark = pytest.mark.cluster
MINUTES = float(os.environ.get("RECLAIM_CRASH_MINUTES", "2"))
MIDDLE = "whatever comes in the middle"
SEED = int(os.environ.get("RECLAIM_SEED", "0")) or int(time.time() // 86400)
KINDS = ("calls and events", "deletions", "calls and events", "remote before", "remote after")


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


def met(lane: Lane, program: str, verb: str, fault, words: str, event: str = "") -> Tried:
    """What became of the session. Threads of a program call in another order each time, so that the
    call of that number may be another one, or none: tried anew then."""
    for _ in range(3):
        number = the_call(lane, program, verb, fault, words)
        tried = lane.try_point(Point(program, verb, fault, number, event))
        if tried.outcome:
            break
    return tried


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
    tried = met(lane, program, verb, fault, words)
    assert tried.outcome in ("alive", "restorable"), f"{tried.point} [{tried.call}] {tried.note}"


@pytest.mark.parametrize("event", ["slurmctld dead for 4 s", "kill -9 of reclaim-relay"])
def test_while_a_session_is_restored(lane: Lane, event: str) -> None:
    tried = met(lane, "reclaim-agent", "restore", STOP, "reclaim-exec", event)
    assert tried.outcome in ("alive", "restorable"), f"{tried.point} [{tried.call}] {tried.note}"


def test_a_sample_of_the_matrix(
    rig: Rig, lane: Lane, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    kind, told = KINDS[SEED % len(KINDS)], []
    lane.start_over()
    with ExitStack() as stack:
        if kind.startswith("remote"):
            stack.enter_context(remote.in_use(rig, PLACE, kind.split()[1]))
        points = list(_points(kind, rig, request))
        matrix = Matrix(rig, told.append, MINUTES)
        matrix.run(sample(points, SEED))
    with capsys.disabled():
        print(f"\ncrash matrix, {kind}, RECLAIM_SEED={SEED}\n{matrix.table()}")
    assert not matrix.lost(), "\n".join(f"{t.point} [{t.call}] {t.note}" for t in matrix.lost())
    assert any(tried.outcome for tried in told)


def _points(kind: str, rig: Rig, request: pytest.FixtureRequest) -> Iterator[Point]:
    if kind == "deletions":
        lane = expiry.lane_of(rig)
        found = expiry.count_calls(lane)
        lane.start_over()
        yield from around(found, expiry.EVENTS, 4)
    elif kind.startswith("remote"):
        lane = Lane(rig, rig.nodes[0])
        found = count_calls(lane)
        lane.start_over()
        yield from around(found, world.REMOTE_EVENTS, 4, "s3")
    else:
        found = request.getfixturevalue("counts")
        yield from around(found, world.EVENTS, 4)
        yield from around(found, [world.AT_STORE], 4, "criu")
        yield from beside(found, world.UPGRADES, 4)
    yield from every(found, SEED)
