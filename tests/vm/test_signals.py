"""What the test cluster's tests see of meters on cgroup v1, seen on version 2.

Not those of programs that start others each second: an emulated CPU makes that use. What is said
of a terminal is looked at with one that starts none."""

from __future__ import annotations

import time

from tests.cluster.test_signals import (
    start,
    test_a_login_adopted_into_the_job_counts,
    test_a_program_that_writes_files_counts,
    test_a_restore_makes_no_spike,
    test_a_session_that_sleeps_uses_nothing,
    test_a_slow_download_from_another_node_counts,
    test_a_step_that_computes_counts,
    test_typing_is_use,
    test_work_behind_a_program_that_waits_counts,
    unused,
)

__all__ = [
    "start",
    "test_a_login_adopted_into_the_job_counts",
    "test_a_program_that_writes_files_counts",
    "test_a_restore_makes_no_spike",
    "test_a_session_that_sleeps_uses_nothing",
    "test_a_slow_download_from_another_node_counts",
    "test_a_step_that_computes_counts",
    "test_typing_is_use",
    "test_work_behind_a_program_that_waits_counts",
]

CLOCK = """
import time
while True:
    print(time.ctime(), flush=True)
    time.sleep(1)
"""


def test_output_on_a_terminal_is_not_use(start):
    """C35."""
    put = f"cat > clock-$SLURM_JOB_ID.py <<'E'\n{CLOCK}E\n"
    job = start(f'{put}script -qc "python3 clock-$SLURM_JOB_ID.py" /dev/null > /dev/null')
    time.sleep(3)
    job.sample(1)
    readings = job.sample(10)
    unused(readings)
    assert readings["terminal"]["what"] == "no input"
