"""Sessions like those of the notebook trace of June 2021, from its quantiles alone: how long runs
and the gaps between them are, and on how many GPUs. Nothing of the trace itself is in here.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from math import exp, log

from .sensei import TICK, Run

# (share, minutes); what lies between them is interpolated in the logarithm. The ends are ours:
# chosen so that the means come out as measured (gaps 172 minutes).
RUNS = ((0.0, 2), (0.5, 5), (0.75, 11), (0.9, 32), (0.95, 95), (0.99, 1021), (1.0, 3000))
GAPS = (
    (0.0, 1), (0.25, 1), (0.5, 3), (0.75, 7), (0.8, 10), (0.9, 35), (0.95, 195), (0.97, 667),
    (0.98, 1278), (0.99, 3909), (1.0, 40000),
)  # fmt: skip
GPUS = ((1, 0.49), (4, 0.20), (8, 0.31))
MOST_DAYS = 30


def sessions(count: int, seed: int = 1, runs: int = 92) -> list[list[Run]]:
    """`runs`: how many a session has on average."""
    chance = random.Random(seed)
    return [_session(chance, runs) for _ in range(count)]


def quantile(table: Sequence[tuple[float, float]], share: float) -> float:
    at = min(bisect_right([s for s, _ in table], share), len(table) - 1)
    (left, low), (right, high) = table[at - 1], table[at]
    part = (share - left) / (right - left)
    return exp(log(low) + part * (log(high) - log(low)))


def _session(chance: random.Random, runs: int) -> list[Run]:
    gpus = chance.choices([g for g, _ in GPUS], [w for _, w in GPUS])[0]
    found: list[Run] = []
    at = 0.0
    for _ in range(max(2, round(chance.expovariate(1 / runs)))):
        length = round(quantile(RUNS, chance.random())) * TICK
        found.append(Run(at, at + length, gpus))
        at += length + max(1, round(quantile(GAPS, chance.random()))) * TICK
        if at > MOST_DAYS * 86400:
            break
    return found
