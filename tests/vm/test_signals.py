"""What the test cluster's tests see of meters on cgroup v1, seen on version 2."""

from __future__ import annotations

from tests.cluster.test_signals import (
    start,
    test_a_login_adopted_into_the_job_counts,
    test_a_program_that_writes_files_counts,
    test_a_restore_makes_no_spike,
    test_a_session_that_sleeps_uses_nothing,
    test_a_slow_download_from_another_node_counts,
    test_a_step_that_computes_counts,
    test_output_on_a_terminal_is_not_use,
    test_typing_is_use,
    test_work_behind_a_program_that_waits_counts,
)

__all__ = [
    "start",
    "test_a_login_adopted_into_the_job_counts",
    "test_a_program_that_writes_files_counts",
    "test_a_restore_makes_no_spike",
    "test_a_session_that_sleeps_uses_nothing",
    "test_a_slow_download_from_another_node_counts",
    "test_a_step_that_computes_counts",
    "test_output_on_a_terminal_is_not_use",
    "test_typing_is_use",
    "test_work_behind_a_program_that_waits_counts",
]
