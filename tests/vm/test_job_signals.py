"""What the test cluster's tests see of Slurm's signals to a managed job, under cgroup v2."""

from __future__ import annotations

from tests.cluster.spank.conftest import bench, node
from tests.cluster.spank.test_signals import (
    signal_children,
    test_plain_scancel,
    test_requeue_runs_the_script_again,
    test_scancel_with_a_signal,
    test_signal_before_the_end,
    test_stopped_and_continued,
    test_suspend_and_resume,
    test_time_limit,
)

__all__ = [
    "bench",
    "node",
    "signal_children",
    "test_plain_scancel",
    "test_requeue_runs_the_script_again",
    "test_scancel_with_a_signal",
    "test_signal_before_the_end",
    "test_stopped_and_continued",
    "test_suspend_and_resume",
    "test_time_limit",
]
