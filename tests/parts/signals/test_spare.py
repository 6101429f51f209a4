"""A CRIU at work is not what the kernel takes when memory is short."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from slurm_reclaim.adapters.proc import tree


@pytest.mark.skipif(os.geteuid() != 0, reason="lowering oom_score_adj needs root")
def test_a_spared_process_is_taken_last() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        tree.spare(process.pid)
        said = Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip()
        process.kill()
    assert said == "-900"


def test_sparing_one_that_has_ended_is_no_error() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    tree.spare(process.pid)
