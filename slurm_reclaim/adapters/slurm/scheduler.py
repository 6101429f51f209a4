"""Slurm as the stages need it (ports.Scheduler), by squeue, sinfo, scontrol, scancel and
sacctmgr."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

from slurm_reclaim.adapters.slurm import rights, scontrol
from slurm_reclaim.adapters.slurm.rows import Cutter
from slurm_reclaim.adapters.slurm.runner import Runner
from slurm_reclaim.adapters.slurm.squeue import list_jobs, show_job
from slurm_reclaim.adapters.slurm.values import words
from slurm_reclaim.errors import SchedulerUnavailable
from slurm_reclaim.model.job import Job, JobDetail, Node
from slurm_reclaim.ports import NodeNames

_NODE_FIELDS = ("NodeList", "StateComplete", "Partition", "NodeAddr", "NodeHost")
_OPERATOR_FOR = 300.0  # seconds an answer of slurmdbd about a user is believed
_LEVELS = frozenset({"operator", "administrator"})


class SlurmCommands:
    """The account this runs as needs the level Administrator: only that may write AdminComment."""

    def __init__(self, runner: Runner, names: NodeNames) -> None:
        self._runner = runner
        self._names = names
        self._operators: dict[str, tuple[float, bool]] = {}

    async def cluster(self) -> str:
        """ClusterName. Raises SchedulerUnavailable."""
        answer = await self._runner.run("scontrol", "show", "config")
        match = re.search(r"^ClusterName\s*=\s*(\S+)", answer.out, re.MULTILINE)
        if match is None:
            raise SchedulerUnavailable("scontrol show config names no ClusterName")
        return match[1]

    async def jobs(self) -> Sequence[Job]:
        return await list_jobs(self._runner, self._names)

    async def detail(self, job_id: int) -> JobDetail | None:
        found = await show_job(self._runner, self._names, job_id)
        if found is None and (why := await rights.hidden(self._runner)):
            # A job that is hidden is "invalid", too: no session ends for that.
            raise SchedulerUnavailable(f"Slurm shows no job {job_id}, but {why}", hint=rights.HINT)
        return found

    async def nodes(self) -> Sequence[Node]:
        cutter = Cutter(_NODE_FIELDS)
        answer = await self._runner.run("sinfo", "-a", "-h", "-N", "-O", cutter.format)
        return await asyncio.to_thread(_nodes, list(cutter.rows(answer.out)))

    async def annotate(self, job: str, *, comment: str, admin_comment: str) -> None:
        await scontrol.update(self._runner, job, Comment=comment, AdminComment=admin_comment)

    async def requeue_held(self, job: str, *, special_exit: bool) -> None:
        await scontrol.requeue_held(self._runner, job, special_exit=special_exit)

    async def requeue(self, job: str) -> None:
        await scontrol.requeue(self._runner, job)

    async def prepare_held(
        self, job: str, *, time_limit: int, excluded_nodes: str, start_in: int, comment: str
    ) -> None:
        changes = {"ExcNodeList": excluded_nodes}
        if comment:
            changes["Comment"] = comment
        if time_limit:
            changes["TimeLimit"] = scontrol.minutes(time_limit)
        if start_in >= 0:
            # Else the job waits out Slurm's two minutes after a requeue.
            changes["StartTime"] = f"now+{start_in}"
        await scontrol.update(self._runner, job, **changes)

    async def release(self, job: str) -> None:
        await scontrol.release(self._runner, job)

    async def hold(self, job: str) -> None:
        await scontrol.hold(self._runner, job)

    async def cancel(self, job: str) -> None:
        await scontrol.cancel(self._runner, job)

    async def operator(self, user: str) -> bool:
        if user == "root":
            return True
        at, known = self._operators.get(user, (float("-inf"), False))
        if time.monotonic() - at < _OPERATOR_FOR:
            return known
        answer = await self._runner.run(
            "sacctmgr", "-n", "-P", "show", "user", f"name={user}", "format=adminlevel"
        )
        level = answer.out.strip().lower() in _LEVELS
        self._operators[user] = (time.monotonic(), level)
        return level


def _nodes(rows: list[dict[str, str]]) -> list[Node]:
    """One node per name: sinfo -N has a row for each partition of a node."""
    states: dict[str, frozenset[str]] = {}
    partitions: dict[str, list[str]] = {}
    hosts: dict[str, tuple[str, ...]] = {}
    for row in rows:
        name = row["NodeList"].strip()
        states[name] = frozenset(re.findall(r"[a-z_]+", row["StateComplete"].lower()))
        partitions.setdefault(name, []).append(row["Partition"].strip().rstrip("*"))
        said = (words(row["NodeAddr"]), words(row["NodeHost"]))
        hosts[name] = tuple(dict.fromkeys(host for host in said if host))
    return [Node(name, states[name], tuple(partitions[name]), hosts[name]) for name in states]
