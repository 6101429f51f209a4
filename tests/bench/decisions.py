"""Who would have been hibernated by whom: our policy and the rules of others, side by side.

Two labelled traces: a month of notebook use (the real one where it is present, see
tests/traces/sensei.py, else one generated from its quantiles), and the behaviours.
RECLAIM_BENCH_ROUNDS: how often each behaviour is played (5).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from slurm_reclaim.adapters import trace
from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.trace import Entry
from slurm_reclaim.policy.replay import Replay
from slurm_reclaim.policy.score import Tally, score
from tests.bench.rules import RULES, ByRule
from tests.traces import DATA, behaviours, generate, sensei, stretch

ROUNDS = int(os.environ.get("RECLAIM_BENCH_ROUNDS", "5"))
OURS = "slurm-reclaim, 45 + 15 min"
HEADER = (
    f"{'rule':38} {'captured':>9} {'of GPU':>7} {'back<15m':>9} {'in use':>7}  per 1,000 h (95 %)"
)


def side_by_side(title: str, entries: Iterable[Entry]) -> None:
    contenders: dict[str, Replay] = {OURS: Replay(Config(), limited=False)}
    contenders |= {name: ByRule(make) for name, make in RULES.items()}
    for entry in entries:
        for replay in contenders.values():
            replay.take(entry)
    print(f"\n{title}\n{HEADER}")
    for name, replay in contenders.items():
        print(row(name, score(replay.seats.values(), replay.acts).total), flush=True)


def row(name: str, total: Tally) -> str:
    rate, low, high = total.rate() or (0.0, 0.0, 0.0)
    return (
        f"{name:38} {share(total.share):>9} {share(total.gpu_share):>7} {share(total.regret):>9} "
        f"{total.wrong:>7}  {rate:.2f} ({low:.2f} to {high:.2f})"
    )


def share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def main() -> None:
    file = sensei.path()
    if file is not None:
        month = sensei.entries(sensei.sessions(file), "converted")
        side_by_side(f"the month of {file.name}", month)
    else:
        print("the notebook trace is not here (RECLAIM_SENSEI_TRACE): generated from its quantiles")
    month = sensei.entries(generate.sessions(100), "generated")
    side_by_side("a month of 100 sessions generated from quantiles", month)
    recorded = DATA / "behaviours.jsonl.zst"
    if recorded.is_file():
        side_by_side("behaviours, recorded and stretched", trace.read(str(recorded)))
        hard = stretch.entries(trace.read(str(DATA / "recording.jsonl.zst")), hard=True)
        side_by_side("recorded behaviours that our signals can't tell from rest", hard)
    side_by_side(f"behaviours, synthetic, {ROUNDS} times each", behaviours.entries(ROUNDS))
    hard = behaviours.entries(ROUNDS, plays=behaviours.HARD)
    side_by_side("behaviours that our signals can't tell from rest, synthetic", hard)


if __name__ == "__main__":
    main()
