# SPDX-License-Identifier: Apache-2.0
"""On a real card, with the calls that the product makes: `make test-gpu`, as root. Where there is
no card all of it is skipped. What was measured is printed at the end, and written to
$RECLAIM_GPU_TABLE."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slurm_reclaim.adapters.cuda.driver import Driver
from slurm_reclaim.adapters.gpu.watch import NvmlWatch, Round
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.tree import Process
from slurm_reclaim.model import driver as drivers
from tests.gpu.real.results import Row, Table

PATTERNS = Path(__file__).with_name("patterns.py")
PROGRAM = os.environ.get("CUDA_CHECKPOINT", "/usr/bin/cuda-checkpoint")
SET_UP = 600.0  # seconds; tens of GB are filled first
ASKED = 600.0
TABLE = Table()
# Only for trying this suite itself, on the simulated libraries.
PASSED = ("LD_LIBRARY_PATH", "NVML_SIMULATED", "SIMULATED_GPU_DEVICES", "SIMULATED_GPU_MEMORY")


def environment() -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED if name in os.environ}


def round_of(watch: NvmlWatch, patience: float = 60.0) -> tuple[Round | None, str]:
    deadline = time.monotonic() + patience
    while True:
        rounds, why = watch.rounds(time.time() - 1.0)
        if rounds:
            return rounds[-1], ""
        if time.monotonic() > deadline or "starting" not in why:
            return None, why
        time.sleep(0.2)


@pytest.fixture(scope="session")
def watch() -> Iterator[NvmlWatch]:
    made = NvmlWatch(environment())
    yield made
    made.close()


@pytest.fixture(scope="session")
def node(watch: NvmlWatch) -> Round:
    """A round of NVML's, where everything is there that a real test needs."""
    if os.geteuid() != 0:
        pytest.skip(
            "the driver's checkpoint API needs root for processes of others: run it as root"
        )
    found, why = round_of(watch)
    if found is None or not found["cards"]:
        pytest.skip(f"no NVIDIA GPU can be used on this machine: {why or 'NVML lists no card'}")
    driver = found["driver"]
    if problem := drivers.problem(driver, os.uname().machine):
        pytest.skip(problem)
    TABLE.card, TABLE.driver = found["cards"][0]["model"], driver
    with Driver(PROGRAM, environment=environment()) as opened:
        TABLE.way = opened.way
    return found


@dataclass
class Client:
    """A process of patterns.py. `bytes` it holds on the card."""

    process: subprocess.Popen[bytes]
    folder: Path
    bytes: int
    asked: int = 0

    @property
    def seen(self) -> Process:
        """As the product knows it: by PID and start time, which CRIU restores only the first of."""
        pid = self.process.pid
        return Process(pid, pid, os.getpid(), "patterns.py", "S", tree.start_time(pid), {})

    def ask(self, word: str) -> dict[str, Any]:
        self.asked += 1
        (self.folder / ".ask").write_text(word)
        (self.folder / ".ask").rename(self.folder / f"ask-{self.asked}")
        return answered(self.folder, self.asked, ASKED)

    def verified(self) -> None:
        assert self.ask("verify") == {"wrong": ""}


def answered(folder: Path, number: int, patience: float) -> dict[str, Any]:
    path, deadline = folder / f"answer-{number}", time.monotonic() + patience
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path.name}: {(folder / 'log').read_text()[-500:]}"
        time.sleep(0.01)
    return json.loads(path.read_text())


@pytest.fixture
def start(node: Round, tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """start(pattern, mib=, seed=): a client that has set everything up."""
    running: list[Client] = []

    def begin(pattern: str, mib: int = 256, seed: int = 1) -> Client:
        folder = tmp_path / f"{pattern}-{len(running)}"
        folder.mkdir()
        with open(folder / "log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, PATTERNS, pattern, folder, "--mib", str(mib), "--seed", str(seed)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
            )  # fmt: skip
        client = Client(process, folder, 0)
        running.append(client)
        said = answered(folder, 0, SET_UP)
        if "error" in said:
            pytest.skip(f"{pattern} can't be set up here: {said['error']}")
        client.bytes = said["bytes"]
        return client

    yield begin
    for client in running:
        if client.process.poll() is None:
            client.process.kill()
            client.process.wait()


@pytest.fixture
def driver(node: Round) -> Iterator[Driver]:
    with Driver(PROGRAM, environment=environment()) as opened:
        yield opened


@pytest.fixture
def row() -> Callable[[Row], None]:
    return TABLE.rows.append


@pytest.fixture
def table() -> Table:
    return TABLE


def limit(size: int) -> float:
    """As the product's defaults have it."""
    return 120.0 + 5.0 * size / (1 << 30)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not TABLE.rows:
        return
    text = TABLE.markdown()
    terminalreporter.section("for docs/gpu.md")
    terminalreporter.write_line(text)
    if path := os.environ.get("RECLAIM_GPU_TABLE"):
        Path(path).write_text(text + "\n")
