"""Processes of the job that are not in the session: job steps (srun) and adopted logins (ssh).

They belong to other slurmstepds, no image holds them, and a requeue would end them. An adopted
login in which nothing runs is a connection like others and may be closed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from slurm_reclaim.adapters.proc.cgroup import job_directory
from slurm_reclaim.adapters.proc.tree import (
    PROC,
    Process,
    command_line,
    kernel_text,
    namespace,
    read,
    terminal,
)
from slurm_reclaim.model.blocker import Blocker

_OURS = ("reclaim-relay", "reclaim-witness")
_SSHD = ("sshd", "sshd-session")  # the second since OpenSSH 9.8


def job_of(pid: int) -> str:
    """The cgroup directory of the job that `pid` belongs to; empty where there is none."""
    return job_in(_cgroups(pid))


def job_in(cgroups: str) -> str:
    """The same for a /proc/PID/cgroup text, of either version."""
    paths = (line.split(":", 2)[-1] for line in cgroups.split("\n"))
    return next((found for path in paths if (found := job_directory(path))), "")


def outside(relay: int, init: int, uid: int) -> list[Blocker]:
    """A blocker for each process of `uid` that is in the job but not in the session."""
    directory = job_of(relay)
    session = namespace(init, "pid")
    if not directory or not session:
        return []
    found, parents = [], set()
    for pid, step in _of_job(directory):
        process = read(pid)
        if process is None or namespace(pid, "pid") == session:
            continue
        parents.add(process.parent)
        if _users(process, relay, uid):
            found.append((process, step))
    return [
        Blocker(
            "job-step",
            f"{process.name} ({process.pid}) belongs to another step of the job",
            "steps started with srun, and programs in logins by ssh, would be lost; end them",
        )
        for process, step in found
        if not (step == "extern" and bare_login(process, _first_word(process.pid), parents))
    ]


def terminals(relay: int, init: int) -> set[int]:
    """Device numbers of the controlling terminals of the job's processes that are not in the
    session: logins, `srun --pty`."""
    directory, session = job_of(relay), namespace(init, "pid")
    if not directory or not session:
        return set()
    pids = [pid for pid, _ in _of_job(directory) if namespace(pid, "pid") != session]
    return {device for pid in pids if (device := terminal(pid))}


def bare_login(process: Process, first_word: str, parents: set[int]) -> bool:
    """Whether nothing but a connection is lost with this process of an adopted login: it is
    sshd's own, or a login shell that waits at its prompt. `parents` are the PIDs that have
    children in the job."""
    if process.name in _SSHD:
        return True
    return first_word.startswith("-") and process.state == "S" and process.pid not in parents


def _of_job(directory: str) -> Iterator[tuple[int, str]]:
    """PID and step (`batch`, `extern`, `0`) of all that is in the job's cgroups."""
    inside = re.compile(re.escape(directory) + r"/step_(\w+)")
    for entry in os.scandir(PROC):
        if entry.name.isdigit() and (match := inside.search(_cgroups(int(entry.name)))):
            yield int(entry.name), match[1]


def _first_word(pid: int) -> str:
    return next(iter(command_line(pid)), "")


def _users(process: Process, relay: int, uid: int) -> bool:
    if process.state in "ZX" or uid not in process.uids:
        return False
    return process.pid != relay and not (process.parent == relay and process.name in _OURS)


def _cgroups(pid: int) -> str:
    try:
        return kernel_text(PROC / str(pid) / "cgroup")
    except (FileNotFoundError, ProcessLookupError):
        return ""
