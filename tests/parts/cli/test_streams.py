"""Where the output goes to a place that takes none of it, or was closed by the caller."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

READ = ["config", "sample"]  # more than a buffer holds
SMALL = ["config", "sample", "--help"]
REFUSED = ["show", "twelve", "--json"]


def run(line: str, *args: str) -> subprocess.CompletedProcess[str]:
    """`$@` of the shell's `line` is `reclaim ARGS`."""
    words = [sys.executable, "-m", "slurm_reclaim.cli.main", *args]
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line, "sh", *words],
        capture_output=True, text=True, timeout=60, env=dict(os.environ),
    )  # fmt: skip


@pytest.mark.parametrize(("args", "code"), [(READ, 0), (SMALL, 0), (REFUSED, 28)])
def test_nobody_reads_on(args: list[str], code: int) -> None:
    done = run('"$@" | true', *args)
    assert done.returncode == code
    assert "unexpected" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize(("args", "code"), [(READ, 40), (REFUSED, 28)])
def test_there_is_no_room(args: list[str], code: int) -> None:
    done = run('"$@" > /dev/full', *args)
    assert done.returncode == code
    assert done.stderr.count("\n") <= 2
    assert done.stderr.startswith("reclaim: ")
    assert "unexpected" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_one_is_closed(closed: str) -> None:
    assert run(f'"$@" {closed}', *READ).returncode == 0
    done = run(f'"$@" {closed}', *REFUSED)
    assert done.returncode == 28
    assert "unexpected" not in done.stdout + done.stderr
