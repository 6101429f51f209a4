"""Exact confidence limits of a rate from a count of rare events.

Garwood, "Fiducial limits for the Poisson distribution", Biometrika 28 (1936): the limits are the
means under which the count seen, or a more extreme one, has half of what the level leaves over.
They equal chi-square quantiles (2k and 2k + 2 degrees of freedom), found here by bisection.
"""

from __future__ import annotations

from math import exp, lgamma, log, sqrt

_STEPS = 90


def limits(count: int, level: float = 0.95) -> tuple[float, float]:
    """(lower, upper) limits of the mean that gave `count`. Raises ValueError for negative ones."""
    if count < 0:
        raise ValueError("a count is never negative")
    tail = (1.0 - level) / 2.0
    lower = 0.0 if count == 0 else _mean(count - 1, 1.0 - tail)
    return lower, _mean(count, tail)


def at_most(count: int, mean: float) -> float:
    """The probability of `count` or fewer events under this mean."""
    if count > mean + 30.0 * sqrt(mean) + 30.0:
        return 1.0  # as near as a float can tell; and the first term below would be 0
    # From the last term down: they may grow until the mean is reached, and then fall.
    term = total = exp(count * log(mean) - mean - lgamma(count + 1.0))
    for k in range(count, 0, -1):
        term *= k / mean
        total += term
        if k < mean and term < total * 1e-17:
            break
    return min(1.0, total)


def _mean(count: int, probability: float) -> float:
    """The mean under which `count` or fewer have this probability; it falls as the mean grows."""
    low, high = 0.0, count + 10.0 * sqrt(count + 1.0) + 40.0
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if at_most(count, middle) > probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
