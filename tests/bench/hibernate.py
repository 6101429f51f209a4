"""hibernate and restore against the bare tool, in one run: same tree, same disk, alternated.

Per size and repetition: new random numbers, which no checkpoint before held; `criu dump` + fsync
(the tree runs on), `reclaim hibernate`, `criu restore` of the former, `reclaim restore`; both from
the disk, as hours later or on another node, and once more with all they read in memory, as a minute
later. Ratios are taken per repetition, their median is printed. RECLAIM_BENCH_SIZES (MiB, default
256,1024,4096) and RECLAIM_BENCH_REPEATS (5) make it shorter.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from tests.bench.lab import IMAGES, LAB, NAME, PYTHON, STORE, BenchLab
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


class Row(NamedTuple):
    """Seconds."""

    dump: float
    hibernate: float
    disk: tuple[float, float]  # bare restore, restore
    memory: tuple[float, float]


class Bench(BenchLab):
    def size(self, mib: int) -> list[Row]:
        book = Notebook.start(self, f"--mem={mib + 1000}M", "--reclaim=on")
        try:
            book.cell(FILL.format(mib=mib), seconds=120)
            self.inside, self.first = self.put("inside.py"), self.put("first_reply.py")
            rows = []
            for number in range(REPEATS + 1):
                row = self.repetition(book)
                if number:  # the first one warms up
                    rows.append(row)
            return rows
        finally:
            book.cancel()
            self.forget(book.job)

    def repetition(self, book: Notebook) -> Row:
        book.cell(FILL_ANEW, seconds=120)
        self.even()
        bare_dump = self.bare_dump("n1", book.job)["seconds"]
        self.even()
        book.hibernate()
        hibernate = self.events(book.job, "checkpoint-committed")["details"]["seconds"]
        disk = self.restores(book, self.even)
        book.hibernate()
        memory = self.restores(book, self.warm)
        self.exec("ctl", "rm", "-rf", IMAGES)
        return Row(bare_dump, hibernate, disk, memory)

    def warm(self) -> None:
        self.exec("ctl", "sh", "-c", f"cat {IMAGES}/* {STORE}/*/*/packs/* > /dev/null")

    def restores(self, book: Notebook, before: Callable[[], None]) -> tuple[float, float]:
        before()
        done = self.exec("n1", PYTHON, self.inside, "restore", str(book.job), IMAGES)
        bare = json.loads(done.stdout)["seconds"]
        before()
        waiting = subprocess.Popen(
            [str(LAB), "--name", NAME, "exec", "ctl", "--", "/opt/jupyter/bin/python", self.first,
             "n1", str(book.port), TOKEN, book.kernels[0]],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        book.restore()
        answered = float(waiting.communicate(timeout=300)[0])
        restored = self.events(book.job, "session-restored")
        return bare, answered - restored["details"]["began"]

    def run(self) -> None:
        self.up()
        print(
            f"{REPEATS} repetitions, medians; {os.cpu_count()} cores, kernel {os.uname().release}"
        )
        print(f"{'':>6} {'criu':^10}{'':>28} {'from the disk: first':^36} {'in memory: first':^36}")
        print(f"{'MiB':>6} {'dump+fsync':>10} {'hibernate':>9} {'ratio':>18}"
              + f" {'restore':>8} {'reply':>8} {'ratio':>18}" * 2)  # fmt: skip
        for mib in SIZES:
            rows = self.size(mib)
            line = f"{mib:>6} {median(row.dump for row in rows):>8.2f} s"
            line += f" {median(row.hibernate for row in rows):>7.2f} s"
            line += f" {spread([row.hibernate / row.dump for row in rows]):>18}"
            for pairs in ([row.disk for row in rows], [row.memory for row in rows]):
                line += f" {median(bare for bare, _ in pairs):>6.2f} s"
                line += f" {median(ours for _, ours in pairs):>6.2f} s"
                line += f" {spread([ours / bare for bare, ours in pairs]):>18}"
            print(line, flush=True)


def spread(ratios: list[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


if __name__ == "__main__":
    began = time.monotonic()
    Bench().run()
    print(
        f"({time.monotonic() - began:.0f} s; the lab `{NAME}` stays up: {LAB} --name {NAME} down)"
    )
