"""Scores: what counts as wrong, captured, regretted; and the exact limits of a rate."""

from __future__ import annotations

import pytest

from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.trace import Label, Watched
from slurm_reclaim.policy import poisson
from slurm_reclaim.policy.replay import Act, Kind, Seat
from slurm_reclaim.policy.score import score
from slurm_reclaim.policy.terms import Subject, terms

H = 3600.0


def seat(*labels: tuple[float, float, bool], ends: float, gpus: int = 1) -> Seat:
    """Labels in hours."""
    held = terms(Config(), Subject("", "", "", "", "", ""), 0.0)
    return Seat(
        Watched("s"), gpus, terms=held, last=ends * H,
        labels=[Label("s", b * H, e * H, "work" if a else "left", a) for b, e, a in labels],
    )  # fmt: skip


def act(hour: float, kind: Kind) -> Act:
    return Act("s", hour * H, kind, "because")


def test_idle_time_captured_and_hours_watched() -> None:
    one = seat((0, 2, True), (2, 12, False), ends=12, gpus=4)
    found = score([one], [act(2.75, Kind.WARNED), act(3, Kind.HIBERNATED)])
    total = found.total
    assert (total.idle, total.captured) == (10 * H, 9 * H)
    assert (total.reachable, total.reached) == (9 * H, 1.0)
    assert total.share == pytest.approx(0.9)
    assert total.gpu_captured == 36 * H
    assert total.hours == 3
    assert (total.wrong, total.alarms, total.hibernated) == (0, 0, 1)
    assert found.behaviours["work"].hours == 2
    assert found.behaviours["left"].hours == 1


def test_hibernated_in_use_is_wrong_and_named() -> None:
    one = seat((0, 10, True), ends=10)
    acts = [act(1, Kind.WARNED), act(2, Kind.HIBERNATED), act(2.1, Kind.RETURNED)]
    found = score([one], acts)
    assert (found.total.wrong, found.total.alarms, found.total.regretted) == (1, 1, 1)
    assert [(a.at, name) for a, name in found.wrongs] == [(2 * H, "work")]
    assert found.total.rate() == pytest.approx((101.01, 2.557, 562.8), rel=1e-3)


def test_the_moment_in_which_use_begins_is_the_earlier_labels() -> None:
    one = seat((0, 2, False), (2, 3, True), ends=3)
    found = score([one], [act(2, Kind.HIBERNATED), act(2.2, Kind.RETURNED)])
    assert found.total.wrong == 0
    assert found.behaviours["left"].regretted == 1


def test_regret_ends_at_a_quarter_of_an_hour() -> None:
    one = seat((0, 9, False), ends=9)
    for back, regretted in ((2.24, 1), (2.26, 0)):
        found = score([one], [act(2, Kind.HIBERNATED), act(back, Kind.RETURNED)])
        assert found.total.regretted == regretted


def test_an_absence_reaches_over_labels() -> None:
    one = seat((0, 4, False), (4, 5, True), (5, 9, False), ends=9)
    found = score([one], [act(2, Kind.HIBERNATED), act(6, Kind.RETURNED)])
    assert found.total.captured == 3 * H
    assert found.total.hibernated == 1
    # In the hour of work the session was not there to be judged.
    assert found.behaviours["work"].hours == 0


def test_what_has_no_label_is_not_judged() -> None:
    assert score([seat(ends=5)], [act(1, Kind.HIBERNATED)]).total.sessions == 0
    part = seat((0, 1, True), ends=5)
    assert score([part], [act(2, Kind.HIBERNATED)]).total.wrong == 0


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # Garwood's table, as in any textbook.
    [
        (0, 0.0, 3.689),
        (1, 0.0253, 5.572),
        (2, 0.242, 7.225),
        (10, 4.795, 18.39),
        (50, 37.11, 65.92),
    ],
)
def test_exact_limits(count: int, low: float, high: float) -> None:
    assert poisson.limits(count) == pytest.approx((low, high), rel=1e-3, abs=1e-3)


def test_limits_of_large_counts_are_about_two_deviations() -> None:
    low, high = poisson.limits(100_000)
    assert low == pytest.approx(100_000 - 1.96 * 316.2, rel=1e-4)
    assert high == pytest.approx(100_000 + 1.96 * 316.2, rel=1e-4)
    with pytest.raises(ValueError, match="negative"):
        poisson.limits(-1)
