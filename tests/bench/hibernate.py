"""hibernate and restore against the bare tool, in one run: same tree, same disk, alternated.

Per size and repetition: new random numbers, which no checkpoint before held; `criu dump` + fsync
(the tree runs on), `reclaim hibernate`, `criu restore` of the former, `reclaim restore`. Ratios are
taken per repetition, their median is printed. RECLAIM_BENCH_SIZES (MiB, default 256,1024,4096) and
RECLAIM_BENCH_REPEATS (5) make it shorter.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time

from tests.bench.lab import IMAGES, LAB, NAME, PYTHON, BenchLab
from tests.cluster.notebook import TOKEN, Notebook

SIZES = [int(s) for s in os.environ.get("RECLAIM_BENCH_SIZES", "256,1024,4096").split(",")]
REPEATS = int(os.environ.get("RECLAIM_BENCH_REPEATS", "5"))
FILL = """
import numpy as np
rng = np.random.default_rng(1)
blocks = [rng.integers(0, 2**63, 8 << 20) for _ in range({mib} // 64)]
"""
# A store by content would find the numbers of the repetition before in what it has.
FILL_ANEW = """
for block in blocks:
    block[:] = rng.integers(0, 2**63, 8 << 20)
"""


class Bench(BenchLab):
    def size(self, mib: int) -> list[tuple[float, float, float, float]]:
        book = Notebook.start(self, f"--mem={mib + 1000}M", "--reclaim=on")
        try:
            book.cell(FILL.format(mib=mib), seconds=120)
            self.inside, self.first = self.put("inside.py"), self.put("first_reply.py")
            rows = []
            for number in range(REPEATS + 1):
                row = self.repetition(book, number)
                if number:  # the first one warms up
                    rows.append(row)
            return rows
        finally:
            book.cancel()

    def repetition(self, book: Notebook, number: int) -> tuple[float, float, float, float]:
        """Seconds: bare dump, hibernate, bare restore, restore."""
        node = book.node
        book.cell(FILL_ANEW, seconds=120)
        self.even()
        bare_dump = self.bare_dump(node, book.job)["seconds"]
        self.even()
        book.hibernate()
        hibernate = self.events(book.job, "checkpoint-committed")["details"]["seconds"]
        # What both read lies in memory, as after a dump.
        self.exec("ctl", "sh", "-c", f"cat {IMAGES}/* > /dev/null")
        done = self.exec(node, PYTHON, self.inside, "restore", str(book.job), IMAGES)
        bare_restore = json.loads(done.stdout)["seconds"]
        waiting = subprocess.Popen(
            [str(LAB), "--name", NAME, "exec", "ctl", "--", "/opt/jupyter/bin/python", self.first,
             node, str(book.port), TOKEN, book.kernels[0]],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        book.restore()
        answered = float(waiting.communicate(timeout=300)[0])
        restored = self.events(book.job, "session-restored")
        self.exec("ctl", "rm", "-rf", IMAGES)
        return bare_dump, hibernate, bare_restore, answered - restored["details"]["began"]

    def run(self) -> None:
        self.up()
        print(
            f"{REPEATS} repetitions, medians; {os.cpu_count()} cores, kernel {os.uname().release}"
        )
        print(f"{'MiB':>6} {'criu dump+fsync':>16} {'hibernate':>10} {'ratio':>18}"
              f" {'criu restore':>13} {'first reply':>12} {'ratio':>18}")  # fmt: skip
        for mib in SIZES:
            rows = self.size(mib)
            down, up = [h / d for d, h, _, _ in rows], [r / c for _, _, c, r in rows]
            d, h, c, r = (statistics.median(column) for column in zip(*rows, strict=True))
            print(f"{mib:>6} {d:>14.2f} s {h:>8.2f} s {spread(down):>18}"
                  f" {c:>11.2f} s {r:>10.2f} s {spread(up):>18}", flush=True)  # fmt: skip


def spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


if __name__ == "__main__":
    began = time.monotonic()
    Bench().run()
    print(
        f"({time.monotonic() - began:.0f} s; the lab `{NAME}` stays up: {LAB} --name {NAME} down)"
    )
