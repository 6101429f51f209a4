"""NodeSamples: what is taken, kept and told, whatever meters and clocks do."""

from __future__ import annotations

import math
import threading
import time
from itertools import pairwise

import pytest

from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon import node_samples
from slurm_reclaim.daemon.node_samples import MOST_KEPT, NodeSamples, squeezed
from slurm_reclaim.model.order import Living
from slurm_reclaim.model.sample import Reading, Sample
from tests.parts.signals.sampled import CPU, JUPYTER, Hanging, Steady, World, session


@pytest.fixture(autouse=True)
def no_shortest(monkeypatch):
    monkeypatch.setattr(node_samples, "SHORTEST", 0.0)


def test_the_first_look_only_begins_the_count():
    one, meter = session(), Steady()
    world = World(meter)
    world.take(one)
    assert world.of(one) == ()
    time.sleep(0.2)
    world.take(one)
    (sample,) = world.of(one)
    assert sample.readings[CPU].value == 1.0
    assert 0.2 <= sample.seconds < 1
    assert abs(sample.at - time.time()) < 1
    assert meter.asked[0] == 0.0
    assert 0.2 <= meter.asked[1] < 1


def test_a_sample_is_no_later_than_its_first_look():
    """C13: a use that comes while other meters are still looking was missed by who asks for uses
    since the sample, and its session hibernated."""

    class Slow(Steady):
        def read(self, seconds):
            self.used = time.time()
            time.sleep(0.05)
            return super().read(seconds)

    one, slow = session(), Slow(JUPYTER)
    world = World(Steady(), slow)
    for _ in range(3):
        world.take(one)
    first, second = world.of(one)
    assert second.at <= slow.used
    assert second.began == pytest.approx(first.at, abs=0.01)


def test_samples_stay_until_the_report_was_answered():
    one = session()
    world = World(Steady())
    for _ in range(3):
        world.take(one)
    assert len(world.of(one)) == 2
    world.take(one)
    assert len(world.of(one)) == 3
    world.take(one)  # while the report is on its way
    world.samples.taken({1})
    assert len(world.of(one)) == 1


def test_samples_of_a_session_that_was_not_in_the_report_stay():
    """Its turn to be looked at for the report failed: its samples count as told by nobody."""
    told, odd = session(1), session(2)
    world = World(Steady())
    for _ in range(2):
        world.take(told, odd)
    assert len(world.of(told)) == len(world.of(odd)) == 1
    world.samples.taken({1})
    assert len(world.of(told)) == 0
    assert len(world.of(odd)) == 1


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_clock_that_is_set_while_samples_are_kept(monkeypatch, step):
    """What a report tells goes by its own time: a sample of a moment ago is one of a moment ago."""
    real = time.time
    one, used = session(), real() - 100.0
    world = World(Steady("terminal"))
    world.meters[0].read = lambda seconds: {"terminal": Reading(1.0, used), CPU: Reading(0.0)}
    for _ in range(3):
        world.take(one)
    assert len(world.of(one)) == 2  # sent, but never answered
    monkeypatch.setattr(node_samples.time, "time", lambda: real() + step)
    told = world.samples.of(one)
    assert all(abs(sample.at - (real() + step)) < 5 for sample in told.samples)
    assert told.samples[0].at < told.samples[1].at
    lasts = [sample.readings["terminal"].last for sample in told.samples]
    assert lasts == pytest.approx([used + step] * 2, abs=0.1)
    assert {sample.readings[CPU].last for sample in told.samples} == {0.0}
    assert told.last_input == pytest.approx(used + step, abs=0.1)
    used += step
    world.take(one)
    kept = world.of(one)
    assert len(kept) == 3
    assert all(abs(b.began - a.at) < 0.1 for a, b in pairwise(kept))


def test_a_controller_that_is_away_leaves_no_hole():
    one = session()
    world = World(Steady())
    for _ in range(200):
        world.take(one)
    kept = world.of(one)
    assert len(kept) <= MOST_KEPT
    assert all(abs(b.began - a.at) < 0.1 for a, b in pairwise(kept))
    for _ in range(200):
        world.take(one)
        again = world.of(one)
    assert len(again) <= MOST_KEPT
    assert abs(again[0].began - kept[0].began) < 0.1


def test_gpus_are_told():
    one = session()
    world = World(Steady("gpu"))
    world.take(one)
    assert [gpu.uuid for gpu in world.samples.of(one).gpus] == ["GPU-1"]


@pytest.mark.parametrize(
    "changes", [{"living": Living.DUMPING}, {"living": Living.RESTORING}, {"init_start": 2}]
)
def test_a_new_run_begins_after_a_dump_and_a_restore(changes):
    one = session()
    world = World(Steady())
    world.take(one)
    world.take(one)
    before = world.of(one)
    other = session(**changes)
    world.take(other)
    world.take(other)
    if "living" in changes:
        assert world.of(other) == before, "what was measured before is kept, nothing is added"
        other.living = Living.RUNNING
        world.take(other)
        assert world.of(other) == before
        world.take(other)
        assert len(world.of(other)) == len(before) + 1
    else:
        assert len(world.of(other)) == 1, "another incarnation has samples of its own"
    assert world.made == 2


def test_a_session_that_is_being_worked_on_is_left_alone():
    one = session()
    world = World(Steady())
    world.take(one)
    world.take(one, busy={one.job_id})
    assert world.of(one) == ()


def test_a_meter_that_hangs_is_unknown_and_stops_nobody():
    one, two = session(1), session(2)
    hanging = {1: Hanging(), 2: Hanging()}
    world = World(limit=0.5)
    world.samples = NodeSamples(Config, lambda s, _: [hanging[s.job_id], Steady()], 0.5)
    try:
        world.take(one, two)
        began = time.monotonic()
        world.take(one, two)
        world.take(one, two)
        assert time.monotonic() - began < 3
        for each in (one, two):
            last = world.of(each)[-1]
            assert last.readings[JUPYTER].value is None
            assert "does not answer" in last.readings[JUPYTER].what
            assert last.readings[CPU].value == 1.0
        assert [h.inside for h in hanging.values()] == [1, 1], "not one more in every pass"
    finally:
        for each in hanging.values():
            each.free.set()
    deadline = time.monotonic() + 10
    while world.of(one)[-1].readings[JUPYTER].value is None and time.monotonic() < deadline:
        time.sleep(0.1)
        world.take(one, two)
    assert world.of(one)[-1].readings[JUPYTER].value == 1.0
    assert world.samples._hung == 0


def test_a_session_with_a_meter_that_never_answered_has_no_sample():
    one = session()
    hanging = Hanging()
    hanging.asked = [0.0]
    world = World(hanging, Steady(), limit=0.3)
    try:
        world.take(one)
        world.take(one)
        assert world.of(one) == ()
    finally:
        hanging.free.set()


def test_no_more_threads_hang_than_allowed(monkeypatch):
    monkeypatch.setattr(node_samples, "MOST_HUNG", 3)
    hanging = Hanging()
    hanging.asked = [0.0]
    world = World(hanging, limit=0.2)
    try:
        for number in range(8):
            world.take(session(number))
        assert hanging.inside <= 3 + node_samples.WORKERS
    finally:
        hanging.free.set()


@pytest.mark.parametrize("value", [RuntimeError("odd"), math.nan, math.inf, -1.0])
def test_what_no_meter_should_say_is_unknown(value):
    one, meter = session(), Steady()
    world = World(meter)
    world.take(one)
    meter.value = value
    world.take(one)
    assert world.of(one)[-1].readings[CPU].value is None


def test_names_and_texts_are_bounded():
    one = session()
    world = World(Steady(what="x" * 10_000), Steady("no-signal"))
    world.take(one)
    world.take(one)
    (sample,) = world.of(one)
    assert list(sample.readings) == [CPU]
    assert len(sample.readings[CPU].what) <= 300


def test_of_two_meters_the_one_that_does_not_know_decides():
    one = session()
    world = World(Steady(value=1.0), Steady(value=None), Steady(value=2.0))
    world.take(one)
    world.take(one)
    assert world.of(one)[0].readings[CPU].value is None


def test_a_wall_clock_that_is_set_makes_no_negative_time(monkeypatch):
    one = session()
    world = World(Steady())
    world.take(one)
    now = time.time
    for offset in (0, -3600, -3600, 7200, 7200):
        monkeypatch.setattr(node_samples.time, "time", lambda offset=offset: now() + offset)
        world.take(one)
    for _ in range(100):
        world.take(one)
    kept = world.of(one)
    assert len(kept) <= MOST_KEPT
    assert all(0 <= sample.seconds < 60 for sample in kept)


def test_samples_are_merged_only_with_their_neighbours():
    def sample(at, value):
        return Sample(at, 10.0, {CPU: Reading(value)})

    row = [sample(10.0 * n, n) for n in range(1, 6)] + [sample(1000.0, 9.0), sample(1010.0, 8.0)]
    merged = squeezed(row, 4)
    assert [(s.at, s.seconds) for s in merged] == [
        (20.0, 20.0), (40.0, 20.0), (50.0, 10.0), (1010.0, 20.0),
    ]  # fmt: skip
    assert merged[-1].readings[CPU].value == 9.0
    apart = [sample(100.0 * n, n) for n in range(10)]
    assert [s.at for s in squeezed(apart, 4)] == [600.0, 700.0, 800.0, 900.0]


def test_settle_waits_for_who_looks_at_the_session():
    one = session()
    hanging = Hanging()
    world = World(hanging, limit=0.2)
    world.take(one)
    world.take(one)
    assert hanging.inside == 1
    threading.Timer(0.5, hanging.free.set).start()
    world.samples.settle(one.job_id, patience=20)
    assert hanging.inside == 0
    world.take(one, busy={one.job_id})
    assert hanging.inside == 0


def test_settle_does_not_wait_for_ever():
    one = session()
    hanging = Hanging()
    world = World(hanging, limit=0.2)
    world.take(one)
    world.take(one)
    began = time.monotonic()
    world.samples.settle(one.job_id, patience=0.3)
    assert time.monotonic() - began < 3
    hanging.free.set()


def test_what_is_kept_of_sessions_that_are_gone_is_forgotten():
    world = World(Steady())
    one, two = session(1), session(2)
    for _ in range(3):
        world.take(one, two)
    world.take(two)
    assert world.of(one) == ()
    assert world.of(two) != ()


def test_after_settle_nothing_more_is_asked_in_the_same_pass():
    one = session()
    hanging, after = Hanging(), Steady()
    world = World(hanging, after, limit=30)
    world.take(one)
    passing = threading.Thread(target=world.take, args=(one,))
    passing.start()
    while not hanging.inside:
        time.sleep(0.01)
    world.samples.settle(one.job_id, patience=0.1)
    hanging.free.set()
    passing.join()
    assert len(after.asked) == 1


def test_a_meter_that_had_nothing_to_say_and_hangs_is_unknown():
    """A Jupyter server may have been started since."""
    meter = Hanging()
    meter.signals = (JUPYTER,)
    world, one = World(Steady(), meter, limit=0.2), session()
    first = meter.read
    meter.read = lambda seconds: {} if not meter.asked and first(seconds) else first(seconds)
    for _ in range(3):
        world.take(one)
    meter.free.set()
    assert [s.readings[JUPYTER].value for s in world.of(one)] == [None, None]


def test_threads_are_kept_and_end_with_the_samples():
    """One that hung is not given work again."""
    others = set(threading.enumerate())

    def until(count):
        deadline = time.monotonic() + 10
        while len(set(threading.enumerate()) - others) != count and time.monotonic() < deadline:
            time.sleep(0.05)
        return set(threading.enumerate()) - others

    one, hanging = session(), Hanging()
    world = World(hanging, limit=0.3)
    for _ in range(3):
        world.take(one)
        hanging.asked.clear()
    (kept,) = until(1)
    hanging.asked = [0.0]
    world.take(one)
    hanging.free.set()
    world.take(one)
    (other,) = until(1)
    assert other is not kept
    world.samples = None
    assert not until(0)
