"""What Slurm does to a job by itself or by an administrator's word: its time limit, preemption,
cancelling and requeuing."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.crash.rig import Rig
from tests.crash.session import Ticker

# Slurm compares jobs with their limits every thirty seconds.
LIMIT_SEEN = 75.0  # seconds
PREEMPTED = 45.0  # seconds


def _as(user: str, command: str, outcome: str = "") -> Callable[[Rig, Ticker], str]:
    def happen(rig: Rig, ticker: Ticker) -> str:
        # Before the commit this ends what ran, by the word of who may say so.
        ticker.floor = ticker.saved
        rig.sh("ctl", command.format(ticker.job), user=user, check=False)
        return outcome

    return happen


scancel = _as("alice", "scancel {}", "ended")
scancel_by_admin = _as("root", "scancel {}", "ended")
requeue = _as("alice", "scontrol requeue {}")
requeue_by_admin = _as("root", "scontrol requeue {}")
requeuehold_by_admin = _as("root", "scontrol requeuehold {}")


def time_limit(rig: Rig, ticker: Ticker) -> str:
    """It is over now; until Slurm has seen it, or the job runs no more for another reason."""
    ticker.floor = ticker.saved
    rig.sh("ctl", f"scontrol update JobId={ticker.job} EndTime=now", check=False)
    _until_it_runs_no_more(rig, ticker, LIMIT_SEEN)
    return ""


def preempted(rig: Rig, ticker: Ticker) -> str:
    """A job that goes before it wants all of the node."""
    ticker.floor = ticker.saved
    rig.sh(
        "ctl",
        f"sbatch --reclaim=off -J preemptor-{ticker.node} -p first-on-{ticker.node} --exclusive"
        " -D / -o /dev/null --wrap 'sleep 600'",
        user="bob",
    )
    _until_it_runs_no_more(rig, ticker, PREEMPTED)
    preemptor_ends(rig, ticker.node)
    return ""


def _until_it_runs_no_more(rig: Rig, ticker: Ticker, patience: float) -> None:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and ticker.slurm().startswith("RUNNING"):
        time.sleep(0.2)


def preemptor_ends(rig: Rig, node: str) -> None:
    """So that the node is free for the restore."""
    rig.sh("ctl", f"scancel -n preemptor-{node}", check=False)


def limit_lifted(rig: Rig, ticker: Ticker) -> None:
    if ticker.job:
        rig.sh("ctl", f"scontrol update JobId={ticker.job} TimeLimit=UNLIMITED", check=False)
