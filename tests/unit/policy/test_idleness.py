"""The idle clock, sample by sample."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from slurm_reclaim.model.evidence import Evidence
from slurm_reclaim.model.sample import Reading, Sample, merge
from slurm_reclaim.policy.idleness import Yardstick, begin, fold

START = 1_000_000.0
BY = Yardstick(
    floors={"cpu": 0.05, "io": 1000.0, "network": 1000.0, "gpu": 1.0},
    required=frozenset({"cpu", "terminal"}),
    optional=frozenset({"gpu-pcie"}),
    gap=60.0,
)


def sample(at: float, seconds: float = 10.0, **readings: Reading | float | None) -> Sample:
    """Quiet but for `readings`; a name with _ stands for one with -."""
    base: dict[str, Reading] = {"cpu": Reading(0.0), "terminal": Reading(0.0)}
    for name, value in readings.items():
        known = value if isinstance(value, Reading) else Reading(value)
        base[name.replace("_", "-")] = known
    return Sample(at, seconds, base)


def run(samples: Iterable[Sample], by: Yardstick = BY, before: Evidence | None = None) -> Evidence:
    evidence = before
    for one in samples:
        evidence = fold(begin(one.began) if evidence is None else evidence, one, by)
    assert evidence is not None
    return evidence


def quiet(begin_at: float, until: float, step: float = 10.0) -> list[Sample]:
    count = round((until - begin_at) / step)
    return [sample(begin_at + step * n, step) for n in range(1, count + 1)]


def test_quiet_time_adds_up() -> None:
    evidence = run(quiet(START, START + 300))
    assert evidence.quiet == 300
    assert (evidence.since, evidence.until) == (START, START + 300)
    assert (evidence.active_at, evidence.active_by) == (0.0, "")


def test_use_sets_the_clock_back_to_its_own_time() -> None:
    evidence = run([*quiet(START, START + 300), sample(START + 310, gpu=5.0)])
    assert evidence.quiet == 0
    assert (evidence.active_at, evidence.active_by) == (START + 310, "gpu")
    typed = Reading(1.0, last=START + 303)
    evidence = run([*quiet(START, START + 300), sample(START + 310, terminal=typed)])
    assert evidence.quiet == 7
    assert evidence.used["terminal"] == START + 303


def test_below_the_floor_is_no_use() -> None:
    assert run([*quiet(START, START + 300), sample(START + 310, gpu=0.9)]).quiet == 310
    assert run([*quiet(START, START + 300), sample(START + 310, gpu=1.0)]).quiet == 0


def test_a_floor_of_zero_still_needs_some_use() -> None:
    by = Yardstick({**BY.floors, "gpu": 0.0}, BY.required, BY.optional, BY.gap)
    assert run([sample(START + 10, gpu=0.0)], by).quiet == 10
    assert run([sample(START + 10, gpu=0.01)], by).quiet == 0


def test_a_busy_kernel_is_in_use_until_now_whenever_its_cell_began() -> None:
    """C21, C28: the clock starts when the cell ends."""
    busy = Reading(1.0, last=START + 5, what="kernel a busy")
    evidence = run([sample(START + 10 * n, jupyter=busy) for n in range(1, 100)])
    assert evidence.quiet == 0
    done = Reading(0.0, last=START + 5)
    evidence = run([sample(START + 1000 + 10 * n, jupyter=done) for n in range(6)], before=evidence)
    assert evidence.quiet == 60


def test_the_end_of_an_execution_counts_though_no_sample_saw_it_busy() -> None:
    ran = Reading(0.0, last=START + 295.5, what="kernel a ran a cell")
    evidence = run([*quiet(START, START + 300), sample(START + 310, jupyter=ran)])
    assert evidence.quiet == pytest.approx(14.5)
    assert evidence.active_by == "jupyter"


def test_what_was_used_before_we_looked_is_no_use_now() -> None:
    old = Reading(0.0, last=START - 5000)
    assert run([sample(START + 10, terminal=old)]).active_at == 0.0


def test_a_time_in_the_future_is_not_believed() -> None:
    evidence = run([sample(START + 10, terminal=Reading(0.0, last=START + 1e9))])
    assert (evidence.active_at, evidence.quiet) == (0.0, 10)


def test_cpu_is_judged_by_its_average_over_a_minute() -> None:
    """A page that is loaded anew is housekeeping; what goes on is work (C22)."""
    burst = [sample(START + 10, cpu=0.2), *quiet(START + 10, START + 60)]
    assert run(burst).quiet == 60
    work = [sample(START + 10 * n, cpu=0.06) for n in range(1, 13)]
    assert run(work).quiet == 0
    over = run([*work, *quiet(START + 120, START + 180)])
    assert 40 <= over.quiet <= 60, "the clock runs at most a minute late"
    assert over.active_by == "cpu"


def test_a_task_once_a_minute_is_idle() -> None:
    evidence = None
    for minute in range(10):
        at = START + minute * 60
        tick = [sample(at + 10, cpu=0.1), *quiet(at + 10, at + 60)]
        evidence = run(tick, before=evidence)
    assert evidence is not None
    assert evidence.quiet == 600


def test_bursts_between_polls_count() -> None:
    """C25: the sample carries the highest of the buffer."""
    evidence = None
    for poll in range(1, 40):
        burst = 100.0 if poll % 4 == 0 else 0.0
        evidence = run([sample(START + 10 * poll, gpu=burst)], before=evidence)
        assert evidence.quiet <= 40


@pytest.mark.parametrize("reading", [Reading(None, what="MIG"), None])
def test_unknown_stops_the_clock(reading: Reading | None) -> None:
    readings = {"terminal": Reading(0.0)} | ({"cpu": reading} if reading else {})
    blind = Sample(START + 310, 10, readings)
    evidence = run([*quiet(START, START + 300), blind])
    assert (evidence.quiet, evidence.unknown, evidence.blind) == (300, 10, ("cpu",))
    assert run(quiet(START + 310, START + 320), before=evidence).quiet == 310


def test_unknown_for_longer_than_the_gap_starts_it_anew() -> None:
    blind = [sample(START + 300 + 10 * n, cpu=None) for n in range(1, 8)]
    evidence = run([*quiet(START, START + 300), *blind])
    assert (evidence.quiet, evidence.unknown) == (0, 70)
    assert run(quiet(START + 370, START + 380), before=evidence).quiet == 10


def test_a_hole_between_samples_is_unknown() -> None:
    before = run(quiet(START, START + 300))
    assert run(quiet(START + 340, START + 350), before=before).quiet == 310
    assert run(quiet(START + 370, START + 380), before=before).quiet == 10


def test_use_seen_in_a_blind_sample_is_use() -> None:
    typed = Reading(1.0, last=START + 305)
    evidence = run([*quiet(START, START + 300), sample(START + 310, cpu=None, terminal=typed)])
    assert (evidence.quiet, evidence.active_by) == (5, "terminal")


def test_an_optional_signal_may_be_unknown() -> None:
    evidence = run([sample(START + 10, gpu_pcie=None)])
    assert (evidence.quiet, evidence.blind) == (10, ())


def test_old_and_overlapping_samples_are_not_counted_twice() -> None:
    before = run(quiet(START, START + 300))
    assert run(quiet(START, START + 300), before=before) == before
    assert run([sample(START + 320, seconds=200)], before=before).quiet == 320


def test_merged_samples_say_the_same_or_more_use() -> None:
    parts = [sample(START + 10, cpu=0.3), sample(START + 20), sample(START + 30, gpu=2.0)]
    one = merge(parts)
    assert (one.at, one.seconds) == (START + 30, 30)
    assert one.readings["cpu"].value == 0.3
    assert one.readings["gpu"].value is None, "it was not measured all the time"
    with pytest.raises(ValueError, match="no samples"):
        merge([])


def test_merging_keeps_the_latest_use_and_what_is_unknown() -> None:
    parts = [
        sample(START + 10, terminal=Reading(1.0, last=START + 5, what="pts/0")),
        sample(START + 20, terminal=Reading(None, last=0.0, what="gone")),
    ]
    assert merge(parts).readings["terminal"] == Reading(None, START + 5, "gone")


def test_a_use_in_a_sample_that_came_late_counts() -> None:
    before = run(quiet(START, START + 300))
    late = fold(before, sample(START + 290, gpu=50.0), BY)
    assert (late.active_at, late.active_by, late.quiet) == (START + 290, "gpu", 10)
    assert (late.until, late.used) == (START + 300, {"gpu": START + 290})
    assert fold(late, sample(START + 290, gpu=50.0), BY) == late
    assert fold(before, sample(START + 290, cpu=0.06), BY) == before, "housekeeping"
    assert fold(before, sample(START + 290, cpu=0.6), BY).quiet == 10
    assert fold(before, sample(START + 290, terminal=Reading(1.0, START + 250)), BY).quiet == 50
