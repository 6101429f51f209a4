"""The store against tar + zstd -3, restic and borg: the same dump of a notebook, the same disk.

Seconds until it is on the disk, and bytes stored; then what an idle kernel's second checkpoint
adds. The tools read the dump's files; the store is given them by pipes, as CRIU does. All
alternate; ratios are per repetition, their medians are printed. RECLAIM_BENCH_REPEATS (5).
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.seal import Seal
from slurm_reclaim.model.checkpoint import STORE_MARKER, Credentials
from slurm_reclaim.model.ids import SessionId
from tests.bench.lab import IMAGES, LAB, NAME, BenchLab
from tests.cluster.notebook import Notebook

REPEATS = int(os.environ.get("RECLAIM_BENCH_REPEATS", "5"))
# What a kernel holds: numbers, text, many small objects, zeros.
WORK = """
import numpy as np
rng = np.random.default_rng(1)
noise = rng.standard_normal(12 << 20)
counts = rng.poisson(4.0, 16 << 20)
text = ["a line of text, number %d" % n for n in range(400_000)]
records = [{"id": n, "tags": [n % 7, n % 11]} for n in range(200_000)]
empty = np.zeros(8 << 20)
copy = noise.copy()
"""
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "RESTIC_PASSWORD": "bench", "HOME": "/nonexistent",
    "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes", "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes",
}  # fmt: skip


def run(*words: str, cwd: Path, base: Path) -> None:
    homes = {"BORG_BASE_DIR": str(base / "borg"), "XDG_CACHE_HOME": str(base / "cache")}
    done = subprocess.run(words, cwd=cwd, env=ENVIRONMENT | homes, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{words[0]}: {done.stderr or done.stdout}")


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def with_tar(images: Path, base: Path) -> None:
    out = base / "out" / "x.tar.zst"
    run("sh", "-c", f"tar -c . | zstd -q -3 -T0 -o {out} && sync {out}", cwd=images, base=base)


def with_restic(images: Path, base: Path) -> None:
    run("restic", "-q", "-r", f"{base}/out", "backup", ".", cwd=images, base=base)


def with_borg(images: Path, base: Path) -> None:
    run("borg", "create", "-C", "zstd,3", f"{base}/out::one", ".", cwd=images, base=base)


def with_store(images: Path, base: Path) -> None:
    keys = KeyFile(base / "store.keys")
    keys.add(0)
    store = DirectoryStore(base / "out", "bench", base / "work", Seal(keys, base / "out"))
    owner = Credentials(os.geteuid(), os.getegid(), (), 0, False)
    staged = store.stage(SessionId("bench", 1, 0, 1), 0, owner)
    for path in sorted(images.iterdir()):
        with staged.receive(path.name) as pipe, path.open("rb") as file:
            while piece := file.read(1 << 20):
                rest = memoryview(piece)
                while rest:
                    rest = rest[pipe.write(rest) :]
    staged.finish()
    staged.close()


def prepare(name: str, base: Path) -> None:
    (base / "out").mkdir(mode=0o700)
    if name == "restic":
        run("restic", "-q", "init", "-r", f"{base}/out", cwd=base, base=base)
    elif name == "borg":
        run("borg", "init", "-e", "none", f"{base}/out", cwd=base, base=base)
    elif name == "store":
        (base / "out" / STORE_MARKER).touch()


WAYS: dict[str, Callable[[Path, Path], None]] = {
    "store": with_store, "tar+zstd -3": with_tar, "restic": with_restic, "borg": with_borg,
}  # fmt: skip


def measure(name: str, images: Path, base: Path) -> tuple[float, int]:
    base.mkdir()
    try:
        prepare(name, base)
        before = size(base / "out")
        began = time.monotonic()
        WAYS[name](images, base)
        return time.monotonic() - began, size(base / "out") - before
    finally:
        shutil.rmtree(base)


class Stored(BenchLab):
    def images(self, into: Path) -> tuple[float, float]:
        """Bring a notebook's dump here; the shares of its first checkpoint's bytes that were
        stored, and that its second one added a minute later."""
        book = Notebook.start(self, "--mem=2000M", "--reclaim=on")
        try:
            book.cell(WORK, seconds=120)
            self.bare_dump(book.node, book.job)
            words = [str(LAB), "--name", NAME, "exec", "ctl", "--", "tar", "-c", "-C", IMAGES, "."]
            with subprocess.Popen(words, stdout=subprocess.PIPE) as tar:
                subprocess.run(["tar", "-x", "-C", str(into)], stdin=tar.stdout, check=True)
            shares = []
            for _ in range(2):
                book.hibernate()
                told = self.events(book.job, "checkpoint-committed")["details"]
                shares.append(told["stored"] / told["bytes"])
                book.restore()
                time.sleep(20)
            return shares[0], shares[1]
        finally:
            book.cancel()
            self.forget(book.job)

    def run(self) -> None:
        self.up()
        with tempfile.TemporaryDirectory(dir="/var/tmp") as temporary:
            images = Path(temporary) / "images"
            images.mkdir()
            first, second = self.images(images)
            rows: dict[str, list[tuple[float, int]]] = {name: [] for name in WAYS}
            for number in range(REPEATS):
                for name in list(WAYS) if number % 2 else reversed(WAYS):
                    rows[name].append(measure(name, images, Path(temporary) / "way"))
            self.print(size(images), rows, first, second)

    @staticmethod
    def print(
        whole: int, rows: dict[str, list[tuple[float, int]]], first: float, second: float
    ) -> None:
        print(f"a dump of {whole >> 20} MiB, {REPEATS} repetitions, medians")
        print(f"{'':>12} {'seconds':>8} {'store / it':>11} {'bytes stored':>13}")
        ours = rows["store"]
        for name, row in rows.items():
            seconds = statistics.median(r[0] for r in row)
            ratio = statistics.median(o[0] / r[0] for o, r in zip(ours, row, strict=True))
            share = statistics.median(r[1] for r in row) / whole
            print(f"{name:>12} {seconds:>8.2f} {ratio:>11.2f} {share:>13.1%}")
        print(f"first checkpoint: {first:.1%} of its bytes stored; an idle second: {second:.2%}")


if __name__ == "__main__":
    Stored().run()
