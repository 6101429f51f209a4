"""Faults of Slurm itself that a test cluster meets, told from what slurm-reclaim may have done.

slurmstepd 24.11 loses itself where the request to end a step comes in the moment in which the step
ends by itself: it joins a second watch over the step, which nobody stops, until
UnkillableStepTimeout; then the node is drained ("Kill task failed"). For the extern step of a job
that outlives SIGTERM the moment is no chance: it waits for the other steps as long as slurmd waits
before it sends SIGKILL (KillWait, five seconds at least).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from reclaim_lab.slurm_files import UNKILLABLE_STEP_TIMEOUT

if TYPE_CHECKING:
    from tests.cluster.conftest import Lab

# For which Slurm itself takes a node out of service.
REASONS = ("Kill task failed", "Prolog error", "Duplicate jobid", "batch job complete failure")
# Of its log: the first watch was told to stop, so no process was left; and the end of the second.
_LINE = re.compile(
    r"\[(\d+\.\w+)\] (?:debug:  (signaling condition)|error: \*\*\* .*STEPD TERMINATED)"
)


def drained(lab: Lab) -> list[tuple[str, str]]:
    """(node, reason) of those that Slurm itself took out of service."""
    said = lab.exec("ctl", "sinfo", "-h", "-R", "-o", "%n|%E", check=False).stdout
    rows = [line.split("|", 1) for line in said.splitlines()]
    return [(row[0], row[1]) for row in rows if len(row) == 2 and row[1] in REASONS]


def resume(lab: Lab, node: str) -> None:
    lab.exec("ctl", "scontrol", "update", f"NodeName={node}", "State=RESUME")


def lost_steps(log: str) -> list[str]:
    """The steps, e.g. `25.extern`, that had ended when slurmstepd took them for unkillable."""
    ended: set[str] = set()
    lost = []
    for step, signalled in _LINE.findall(log):
        if signalled:
            ended.add(step)
        elif step in ended:
            lost.append(step)
    return lost


def waited_out(lab: Lab) -> bool:
    """Whether a step was lost; the node that has lost it is in service again then."""
    deadline = time.monotonic() + UNKILLABLE_STEP_TIMEOUT + 10
    ending = ("squeue", "-h", "-t", "COMPLETING", "-o", "%i")
    while lab.exec("ctl", *ending, check=False).stdout and time.monotonic() < deadline:
        time.sleep(0.5)
    found = [
        node
        for node, reason in drained(lab)
        if reason == REASONS[0] and lost_steps(lab.out(node, "cat", "/var/log/slurmd.log"))
    ]
    for node in found:
        resume(lab, node)
    return bool(found)
