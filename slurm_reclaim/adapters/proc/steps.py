"""Processes of the job that are not in the session: job steps (srun) and adopted logins (ssh).

They belong to other slurmstepds, no image holds them, and a requeue would end them.
"""

from __future__ import annotations

import os

from slurm_reclaim.adapters.proc.cgroup import job_directory
from slurm_reclaim.adapters.proc.tree import PROC, Process, kernel_text, namespace, read
from slurm_reclaim.model.blocker import Blocker

_OURS = ("reclaim-relay", "reclaim-witness")


def job_of(pid: int) -> str:
    """The cgroup directory of the job that `pid` belongs to; empty where there is none."""
    paths = (line.split(":", 2)[-1] for line in _cgroups(pid).split("\n"))
    return next((found for path in paths if (found := job_directory(path))), "")


def outside(relay: int, init: int, uid: int) -> list[Blocker]:
    """A blocker for each process of `uid` that is in the job but not in the session."""
    directory = job_of(relay)
    session = namespace(init, "pid")
    if not directory or not session:
        return []
    found = []
    for entry in os.scandir(PROC):
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        if f"{directory}/step_" not in _cgroups(pid) or namespace(pid, "pid") == session:
            continue
        process = read(pid)
        if process is not None and _users(process, relay, uid):
            found.append(
                Blocker(
                    "job-step",
                    f"{process.name} ({pid}) belongs to another step of the job",
                    "steps started with srun, and logins by ssh, would be lost; end them",
                )
            )
    return found


def _users(process: Process, relay: int, uid: int) -> bool:
    if process.state in "ZX" or uid not in process.uids:
        return False
    return process.pid != relay and not (process.parent == relay and process.name in _OURS)


def _cgroups(pid: int) -> str:
    try:
        return kernel_text(PROC / str(pid) / "cgroup")
    except (FileNotFoundError, ProcessLookupError):
        return ""
