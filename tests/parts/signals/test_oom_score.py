"""Which process the kernel takes when memory is short."""

from __future__ import annotations

import subprocess
from pathlib import Path

from slurm_reclaim.adapters.proc import tree


def test_it_is_set_for_another_process() -> None:
    """To a higher one: for lower ones root needs CAP_SYS_RESOURCE, which not every machine has."""
    with subprocess.Popen(["sleep", "60"]) as process:
        tree.adjust_oom_score(process.pid, 777)
        said = Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip()
        process.kill()
    assert said == "777"


def test_one_that_has_ended_is_no_error() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    tree.adjust_oom_score(process.pid, 0)
