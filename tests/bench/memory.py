"""What an agent at work holds in memory: resident right after its start, with sessions that it
watches, and after so many operations, each a hibernation or a restore of one of them; always when
it has been idle again for a while. RECLAIM_BENCH_OPERATIONS (4,8,16,40), RECLAIM_BENCH_MANY (2
sessions).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from tests.bench.lab import BenchLab

OPERATIONS = [int(n) for n in os.environ.get("RECLAIM_BENCH_OPERATIONS", "4,8,16,40").split(",")]
MANY = int(os.environ.get("RECLAIM_BENCH_MANY", "2"))
SETTLED = 15.0  # seconds
SCRIPT = """#!/bin/bash
exec python3 -c 'import time
n = 0
while True: n += 1; time.sleep(1)'
"""


class Memory(BenchLab):
    def look(self, what: str) -> None:
        time.sleep(SETTLED)
        words = "cat /proc/$(pidof -x reclaim-agent | tr ' ' '\\n' | sort -n | head -1)"
        said = self.exec("n1", "sh", "-c", f"{words}/smaps_rollup").stdout
        kib = {line.split(":")[0]: int(line.split()[1]) for line in said.splitlines()[1:]}
        print(f"{what}: {kib['Rss'] / 1024:.1f} MiB, {kib['Anonymous'] / 1024:.1f} of it its own",
              flush=True)  # fmt: skip

    def start(self) -> list[int]:
        words = ("sbatch", "--parsable", "--reclaim=on", "--mem=100M", "-o", "/dev/null")
        jobs = [
            int(self.exec("ctl", *words, user="alice", stdin=SCRIPT).stdout) for _ in range(MANY)
        ]
        for job in jobs:
            self.until(job, "ACTIVE")
        return jobs

    def until(self, job: int, state: str) -> None:
        deadline = time.monotonic() + 120
        while f'"{state}"' not in self.exec("ctl", "reclaim", "show", str(job), "--json",
                                            check=False).stdout:  # fmt: skip
            if time.monotonic() > deadline:
                raise SystemExit(f"job {job} did not become {state}")
            time.sleep(0.3)

    def operations(self, jobs: list[int]) -> Iterator[None]:
        while True:
            for job in jobs:
                self.exec("ctl", "reclaim", "hibernate", str(job))
                yield
            for job in jobs:
                self.exec("ctl", "reclaim", "restore", str(job))
                yield

    def run(self) -> None:
        self.up()
        self.look("started")
        jobs = self.start()
        try:
            self.look(f"{MANY} sessions watched")
            work = self.operations(jobs)
            for number in range(1, max(OPERATIONS) + 1):
                next(work)
                if number in OPERATIONS:
                    self.look(f"after {number} operations")
        finally:
            self.exec("ctl", "scancel", *map(str, jobs))
            self.forget(*jobs)


if __name__ == "__main__":
    Memory().run()
