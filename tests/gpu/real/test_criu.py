# SPDX-License-Identifier: Apache-2.0
"""The whole way: to the host, dumped, gone, restored from the images, back onto the card."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_reclaim.adapters.criu.description import criu_version
from slurm_reclaim.adapters.criu.facts import criu_problem
from slurm_reclaim.adapters.cuda.driver import Driver
from tests.gpu.real.conftest import Client
from tests.gpu.real.results import Row, Table
from tests.gpu.real.test_alone import Start, down, timed, up

CRIU = os.environ.get("RECLAIM_CRIU") or shutil.which("criu") or "/usr/sbin/criu"
LONGEST = 1800.0
WITH = ("--manage-cgroups=ignore", "--file-locks", "--link-remap", "--ghost-limit", "64M")


@pytest.fixture
def images(tmp_path: Path, table: Table) -> Iterator[Path]:
    if problem := criu_problem(CRIU):
        pytest.skip(f"CRIU can't be used here: {problem}")
    table.criu = criu_version(CRIU)
    folder = tmp_path / "images"
    folder.mkdir()
    (tmp_path / "no-plugins").mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def criu(action: str, images: Path, *words: str) -> float:
    log = f"{action}.log"
    command = [
        CRIU, action, "--images-dir", str(images), "--log-file", log, "-v4",
        # Not its own CUDA plugin, whose failures are silent.
        "--libdir", str(images.with_name("no-plugins")), *WITH, *words,
    ]  # fmt: skip
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    took = time.perf_counter() - began
    said = (images / log).read_text(errors="replace") if (images / log).exists() else ""
    errors = [line for line in said.splitlines() if "Error" in line]
    assert done.returncode == 0, f"criu {action}: {done.stderr[-300:]} {errors[-5:]}"
    return took


@pytest.mark.parametrize("pattern", ["sizes", "pinned", "torch", "cublas"])
def test_restored_after_the_process_is_gone(
    start: Start, driver: Driver, images: Path, row: Callable[[Row], None], pattern: str
) -> None:
    client = start(pattern, mib=1024)
    client.verified()
    measured = Row(f"{pattern}, with CRIU", client.bytes)
    down(driver, client, measured)
    measured.dump = criu("dump", images, "--tree", str(client.process.pid))
    client.process.wait(60)
    subprocess.run(["sync"], check=True)
    measured.image_restore = criu("restore", images, "--restore-detached")
    try:
        up(driver, client, measured, [])
        client.verified()
        before = client.ask("work")
        assert "digest" in before
        row(measured)
    finally:
        _end(client)


def _end(client: Client) -> None:
    """It is nobody's child any more."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(client.process.pid, signal.SIGKILL)


def test_the_disk_for_comparison(images: Path, table: Table) -> None:
    size = 1 << 30
    block = os.urandom(1 << 24)

    def write() -> None:
        with open(images / "plain", "wb") as file:
            for _ in range(size // len(block)):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

    table.plain["disk write"] = size / timed(write) / 1e9
    assert table.plain["disk write"] > 0
