"""How much the controller bears: many sessions that report every 30 seconds, for hours.

The controller's own path: reports as agents send them are decoded and taken (observe.take_report),
samples folded, every session judged and stepped in each cycle, events and evidence written to the
journal, which is SQLite on this disk as in production. Slurm, the agents and the clock stand in;
calls to Slurm are counted.

    python -m tests.bench.scale [--sessions 10000 --hours 24]

Without a word it takes 10,000 sessions for two minutes, which says how fast it is, and 50 for a
day, which says whether memory stays flat. 10,000 for a day take about an hour. The mode is shadow.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from slurm_reclaim.adapters.journal.engine import open_engine
from slurm_reclaim.adapters.journal.journal import SqlJournal
from slurm_reclaim.adapters.slurm.nodeset import NodeSetNames
from slurm_reclaim.adapters.transport.wire import decode_request, encode
from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon.controller import Controller, collect_seldom
from slurm_reclaim.model.job import Job, Node
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Living, NodeFacts, Report, SessionReport
from slurm_reclaim.model.sample import Reading, Sample
from slurm_reclaim.policy.decision import decide
from slurm_reclaim.policy.idleness import begin, fold
from slurm_reclaim.policy.terms import Subject, terms
from slurm_reclaim.stages import observe
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.settings import Settings
from slurm_reclaim.stages.view import View

INTERVAL = 30.0
PER_NODE = 8
BEGAN = 1_800_000_000.0
TRES = "cpu=4,mem=16G,gres/gpu=1"
FACTS = NodeFacts(arch="x86_64", kernel="6.1", criu="4.2.1", criu_ok=True, store_ok=True)


class Slurm:
    """Stands in for Slurm: as many jobs as sessions, all of them running."""

    def __init__(self, sessions: int) -> None:
        self.calls: Counter[str] = Counter()
        self._jobs = [_job(number) for number in range(1, sessions + 1)]
        self._nodes = [Node(name, frozenset({"alloc"})) for name in nodes(sessions)]

    async def jobs(self) -> Sequence[Job]:
        self.calls["jobs"] += 1
        return self._jobs

    async def nodes(self) -> Sequence[Node]:
        self.calls["nodes"] += 1
        return self._nodes

    def __getattr__(self, name: str) -> object:
        async def asked(*_: object, **__: object) -> None:
            self.calls[name] += 1

        return asked


class Clock:
    def __init__(self) -> None:
        self.time = BEGAN

    def now(self) -> float:
        return self.time


def nodes(sessions: int) -> list[str]:
    return [f"n{number}" for number in range(1, -(-sessions // PER_NODE) + 1)]


def node_of(number: int) -> str:
    return f"n{-(-number // PER_NODE)}"


def _job(number: int) -> Job:
    return Job(
        job_id=number, uid=2000 + number % 500, user=f"u{number % 500}", name="jupyter",
        account="a", partition="gpu", qos="normal", state="RUNNING", reason="", restarts=0,
        submitted=int(BEGAN) - 7200, started=int(BEGAN) - 7000, ends=0, time_limit=0,
        time_used=7000, nodes=(node_of(number),), tres=TRES,
    )  # fmt: skip


def readings(chance: random.Random, quiet: bool) -> dict[str, Reading]:
    gpu = 0.0 if quiet else chance.uniform(20, 99)
    return {
        "gpu": Reading(gpu), "gpu-memory": Reading(gpu / 2), "gpu-codec": Reading(0.0),
        "gpu-pcie": Reading(chance.uniform(0, 4000)), "cpu": Reading(chance.uniform(0, 0.01)),
        "io": Reading(chance.uniform(0, 900)), "network": Reading(chance.uniform(0, 300)),
        "terminal": Reading(0.0), "jupyter": Reading(0.0 if quiet else 1.0),
    }  # fmt: skip


class Load:
    """What the agents tell. A session works and rests by turns, half an hour to hours each."""

    def __init__(self, sessions: int, seed: int = 1) -> None:
        self.sessions = sessions
        self.chance = random.Random(seed)
        self.until = [0.0] * (sessions + 1)
        self.quiet = [False] * (sessions + 1)
        # Drawn once: a day of ten thousand sessions would take longer to draw than to fold.
        self.drawn = {q: [readings(self.chance, q) for _ in range(500)] for q in (True, False)}

    def bodies(self, now: float) -> Iterator[bytes]:
        """One request body for each node."""
        for index, node in enumerate(nodes(self.sessions)):
            first = index * PER_NODE + 1
            numbers = range(first, min(first + PER_NODE, self.sessions + 1))
            told = tuple(self._session(number, now) for number in numbers)
            yield encode(Report(node, "boot", now, FACTS, told))

    def _session(self, number: int, now: float) -> SessionReport:
        if now >= self.until[number]:
            self.quiet[number] = not self.quiet[number]
            self.until[number] = now + self.chance.uniform(1800, 10800)
        sample = Sample(now, INTERVAL, self.chance.choice(self.drawn[self.quiet[number]]))
        return SessionReport(
            number, 2000 + number % 500, 0, Living.RUNNING, started=BEGAN - 7000,
            processes=12, memory=1 << 30, samples=(sample,),
        )  # fmt: skip


def fold_and_decide(count: int = 50_000) -> None:
    """The policy alone, one sample after the other of one session."""
    chance, held = random.Random(1), terms(Config(), Subject("", "", "", "", "", "", TRES), BEGAN)
    samples = [
        Sample(BEGAN + INTERVAL * n, INTERVAL, readings(chance, n % 200 > 40))
        for n in range(1, count + 1)
    ]
    times = []
    for _ in range(5):
        evidence, began = begin(BEGAN), time.process_time()
        for sample in samples:
            evidence = fold(evidence, sample, held.yardstick)
            decide(evidence, held, sample.at, 60.0)
        times.append((time.process_time() - began) / count)
    print(f"fold and decide alone: {1 / min(times):,.0f} samples/s, the best of 5")


def memory() -> float:
    """MiB resident now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


class Bench:
    def __init__(self, sessions: int, folder: str) -> None:
        self.slurm, self.clock = Slurm(sessions), Clock()
        self.load = Load(sessions)
        self.engine = open_engine("", folder)
        self.desk = Desk(
            scheduler=self.slurm, journal=SqlJournal(self.engine), clock=self.clock,
            names=NodeSetNames(), settings=Settings("bench"), view=View(started=BEGAN - 1000),
        )  # fmt: skip
        self.controller = Controller(self.desk)
        self.spent: Counter[str] = Counter()

    async def interval(self) -> None:
        self.clock.time += INTERVAL
        bodies = list(self.load.bodies(self.clock.time))
        began = time.process_time()
        reports = [decode_request(body, Report) for body in bodies]
        decoded = time.process_time()
        for report in reports:
            observe.take_report(self.desk, report)
        taken = time.process_time()
        await self.controller.cycle()
        await self.controller.settle()
        self.spent["decode"] += decoded - began
        self.spent["take and fold"] += taken - decoded
        self.spent["cycle: decide, step"] += time.process_time() - taken


async def run(sessions: int, hours: float) -> None:
    with tempfile.TemporaryDirectory(prefix="reclaim-bench-") as folder:
        bench = Bench(sessions, folder)
        for _ in range(2):  # adopted in the first, known by name after it
            await bench.interval()
        bench.spent.clear()
        bench.slurm.calls.clear()
        collect_seldom()  # as reclaimd does
        count = max(1, round(hours * 3600 / INTERVAL))
        print(f"{sessions} sessions on {len(nodes(sessions))} nodes, {count} intervals of "
              f"{INTERVAL:g} s; journal: SQLite on disk")  # fmt: skip
        marks = []
        for number in range(1, count + 1):
            await bench.interval()
            if number % max(1, count // 6) == 0:
                marks.append((number * INTERVAL / 3600, memory()))
                print(f"  after {marks[-1][0]:.2f} h: {marks[-1][1]:.0f} MiB", flush=True)
        report(bench, sessions, count, marks)
        bench.engine.dispose()


def report(bench: Bench, sessions: int, count: int, marks: list[tuple[float, float]]) -> None:
    samples, total = sessions * count, sum(bench.spent.values())
    for what, seconds in bench.spent.items():
        print(f"  {what:22} {seconds / samples * 1e6:7.1f} us a sample")
    print(
        f"  {'all':22} {total / samples * 1e6:7.1f} us a sample: {samples / total:,.0f} samples/s"
    )
    print(f"  one core busy for {total / (count * INTERVAL):.1%} of the time")
    print("  resident after hours:", ", ".join(f"{h:.2f}: {mib:.0f} MiB" for h, mib in marks))
    asked = ", ".join(f"{name} {n / count:g}" for name, n in bench.slurm.calls.items())
    print(f"  calls of Slurm an interval: {asked}")
    states = Counter(session.state for session in bench.desk.sessions.values())
    print("  sessions:", ", ".join(f"{states[s]} {s}" for s in State if states[s]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int)
    parser.add_argument("--hours", type=float, default=0.05)
    options = parser.parse_args()
    fold_and_decide()
    # The day first: memory that many sessions left behind would hide what it grows by.
    plan = [(50, 24.0), (10_000, 0.034)]
    for sessions, hours in [(options.sessions, options.hours)] if options.sessions else plan:
        began = time.monotonic()
        asyncio.run(run(sessions, hours))
        print(f"  ({time.monotonic() - began:.0f} s; msgspec {msgspec.__version__})", flush=True)


if __name__ == "__main__":
    main()
