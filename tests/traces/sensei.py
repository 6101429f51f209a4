"""The notebook trace of June 2021 as a labelled trace: 337 sessions, one run of a cell after the
other, thirty days.

The file is not ours and not in the repository: RECLAIM_SENSEI_TRACE names it, or it lies beside the
checkout as ../shared/traces/sensei_june_60sec.csv. It knows when runs began, how long they took and
on how many GPUs; what a session looks like meanwhile is ours: every signal at rest between runs,
GPU, CPU and kernel busy during them. What comes before the first run and after the last is not in
it (perf: "between first and last run"). Samples are a minute long where something may be decided
and longer where nothing can change.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurm_reclaim.model.sample import Reading, Sample
from slurm_reclaim.model.trace import Entry, Header, Label, Measured, Return, Watched

BESIDE = Path(__file__).parents[3] / "shared/traces/sensei_june_60sec.csv"
BEGAN = 1_622_505_600.0  # 2021-06-01 00:00 UTC
TICK = 60.0  # seconds
# Longer than any window and grace that is tried: until then samples are a tick long.
CLOSE = 400 * TICK
COARSE = 10 * TICK

RUNNING = {
    "gpu": Reading(80.0), "gpu-memory": Reading(30.0), "gpu-codec": Reading(0.0),
    "gpu-pcie": Reading(2e7), "cpu": Reading(1.0), "io": Reading(1e5), "network": Reading(1e3),
    "terminal": Reading(0.0), "jupyter": Reading(1.0, what="kernel busy"),
}  # fmt: skip
AT_REST = {
    "gpu": Reading(0.0), "gpu-memory": Reading(0.0), "gpu-codec": Reading(0.0),
    "gpu-pcie": Reading(1e3), "cpu": Reading(0.004), "io": Reading(200.0),
    "network": Reading(300.0), "terminal": Reading(0.0), "jupyter": Reading(0.0),
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    begin: float
    end: float
    gpus: int


def path() -> Path | None:
    """Where the file is; None where it is not here."""
    found = Path(os.environ.get("RECLAIM_SENSEI_TRACE") or BESIDE)
    return found if found.is_file() else None


def sessions(file: Path) -> list[list[Run]]:
    """A submit time that falls begins the next session; runs that touch are one."""
    found: list[list[Run]] = []
    last = float("inf")
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            begin = float(row["submit_time"])
            run = Run(begin * TICK, (begin + float(row["duration"])) * TICK, int(row["num_gpu"]))
            if begin < last:
                found.append([])
            last = begin
            runs = found[-1]
            if runs and run.begin <= runs[-1].end:
                before = runs.pop()
                run = Run(before.begin, max(before.end, run.end), max(before.gpus, run.gpus))
            runs.append(run)
    return found


def entries(found: list[list[Run]], note: str) -> Iterator[Entry]:
    yield Header("sensei", note, by_session=True, complete=True)
    for number, runs in enumerate(found, 1):
        yield from _session(f"s{number}", runs)


def _session(name: str, runs: list[Run]) -> Iterator[Entry]:
    gpus = max(run.gpus for run in runs)
    began = BEGAN + runs[0].begin
    yield Watched(name, user=name, partition="gpu", tres=f"gres/gpu={gpus}", started=began)
    for run, after in zip(runs, [*runs[1:], None], strict=True):
        yield Label(name, BEGAN + run.begin, BEGAN + run.end, "run", True)
        if after is not None:
            yield Label(name, BEGAN + run.end, BEGAN + after.begin, "gap", False)
            yield Return(name, BEGAN + after.begin)
    for run, after in zip(runs, [*runs[1:], None], strict=True):
        yield from _samples(name, run.begin, run.end, RUNNING, close=0.0)
        if after is not None:
            yield from _samples(name, run.end, after.begin, AT_REST, close=CLOSE)


def _samples(
    name: str, begin: float, end: float, readings: dict[str, Reading], close: float
) -> Iterator[Entry]:
    at = begin
    while at < end:
        length = TICK if at - begin < close else COARSE
        length = min(length, end - at)
        at += length
        yield Measured(name, Sample(BEGAN + at, length, readings))
