"""README's first command, as it is written there: it ends well only where the variables and the GPU
memory came back on another node's card."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.conftest import Lab, lab_name

pytestmark = pytest.mark.cluster

DEMO = Path(__file__).with_name("demo")


def test_the_demo(another_lab: Callable[[str], Lab]) -> None:
    lab = another_lab(lab_name("-demo"))
    done = subprocess.run(
        [str(DEMO)],
        env=os.environ | {"RECLAIM_DEMO_LAB": lab.name},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    told = done.stdout
    assert "SPECIAL_EXIT" in told
    assert "freed 512.0 MiB VRAM" in told
    held = [line.split()[-5] for line in told.splitlines() if line.endswith("held by processes")]
    # by card, in NVML's order: while it runs on n1, while it sleeps, and on n2, where they are
    # listed the other way round
    assert held[2:4] == ["0", "0"]
    assert sorted(held[:2]) == sorted(held[4:]) == ["0", "512"]
