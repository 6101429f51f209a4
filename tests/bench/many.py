"""Eight sessions of one node hibernated at once, against eight bare dumps at once.

Seconds from the first order to the last durable checkpoint; `criu dump` + fsync of the same trees,
all started together. Each repetition has new sessions, whose memory no checkpoint before held.
RECLAIM_BENCH_MANY (8), RECLAIM_BENCH_MANY_MIB (128), RECLAIM_BENCH_REPEATS.
"""

from __future__ import annotations

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from tests.bench.lab import BenchLab

MANY = int(os.environ.get("RECLAIM_BENCH_MANY", "8"))
MIB = int(os.environ.get("RECLAIM_BENCH_MANY_MIB", "128"))
REPEATS = int(os.environ.get("RECLAIM_BENCH_REPEATS", "5"))
SCRIPT = """#!/bin/bash
exec python3 -c 'import os, time
held = os.urandom({mib} << 20)
open(f"/shared/bench/ready-{{os.environ["SLURM_JOB_ID"]}}", "w")
while True: time.sleep(1)'
"""


class Many(BenchLab):
    def start(self) -> list[int]:
        words = ("sbatch", "--parsable", "--reclaim=on", f"--mem={MIB + 100}M", "-o", "/dev/null")
        jobs = [
            int(self.exec("ctl", *words, user="alice", stdin=SCRIPT.format(mib=MIB)).stdout)
            for _ in range(MANY)
        ]
        for job in jobs:
            while self.exec(
                "ctl", "test", "-e", f"/shared/bench/ready-{job}", check=False
            ).returncode:
                time.sleep(0.2)
        return jobs

    def bare(self, node: str, jobs: list[int]) -> float:
        with ThreadPoolExecutor(MANY) as pool:
            began = time.monotonic()
            list(pool.map(lambda job: self.bare_dump(node, job, f"/shared/bench/{job}"), jobs))
            seconds = time.monotonic() - began
        self.exec("ctl", "sh", "-c", f"rm -rf {' '.join(f'/shared/bench/{job}' for job in jobs)}")
        return seconds

    def ours(self, jobs: list[int]) -> float:
        with ThreadPoolExecutor(MANY) as pool:
            list(pool.map(lambda job: self.exec("ctl", "reclaim", "hibernate", str(job)), jobs))
            asked = min(self.events(job, "hibernate-asked")["at"] for job in jobs)
            ended = max(self.events(job, "checkpoint-committed")["at"] for job in jobs)
            list(pool.map(lambda job: self.exec("ctl", "reclaim", "restore", str(job)), jobs))
        return ended - asked

    def repetition(self, number: int) -> tuple[float, float]:
        """The first one warms up."""
        jobs = self.start()
        try:
            return self.measure(number, jobs)
        finally:
            self.exec("ctl", "scancel", *map(str, jobs))
            self.forget(*jobs)

    def measure(self, number: int, jobs: list[int]) -> tuple[float, float]:
        self.even()
        bare = self.bare("n1", jobs)
        self.even()
        print(f"{number}/{REPEATS}: bare {bare:.2f} s", end="", flush=True)
        ours = self.ours(jobs)
        print(f", hibernated {ours:.2f} s, ratio {ours / bare:.2f}", flush=True)
        return bare, ours

    def run(self) -> None:
        self.up()
        self.exec("ctl", "chmod", "0777", "/shared/bench")
        # The node has fewer CPUs than there are sessions: each is given to so many jobs.
        share = f"OverSubscribe=FORCE:{MANY}"
        self.exec("ctl", "scontrol", "update", "PartitionName=main", share)
        rows = [self.repetition(number) for number in range(REPEATS + 1)][1:]
        bare, ours = (statistics.median(column) for column in zip(*rows, strict=True))
        ratio = statistics.median(o / b for b, o in rows)
        print(f"{MANY} sessions of {MIB} MiB at once, {REPEATS} repetitions, medians: "
              f"bare {bare:.2f} s, hibernated {ours:.2f} s, ratio {ratio:.2f}")  # fmt: skip


if __name__ == "__main__":
    Many().run()
