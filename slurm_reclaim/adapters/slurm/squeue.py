"""Jobs as squeue shows them: all of the cluster in one query, or one in detail."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace

from slurm_reclaim.adapters.slurm.rows import Cutter
from slurm_reclaim.adapters.slurm.runner import Runner
from slurm_reclaim.adapters.slurm.values import number, seconds, words
from slurm_reclaim.errors import SchedulerUnavailable
from slurm_reclaim.model.job import Job, JobDetail
from slurm_reclaim.ports import NodeNames

# The names of 22.05 and later. `-t all` keeps finished jobs in view for MinJobAge, `-a` shows
# hidden partitions. Pending array tasks stay one row: they are no sessions, and may be millions.
JOB_FIELDS = (
    "JobID", "UserID", "UserName", "Account", "Partition", "QOS", "State", "Reason", "RestartCnt",
    "SubmitTime", "StartTime", "EndTime", "TimeLimit", "TimeUsed", "NodeList", "ArrayJobID",
    "ArrayTaskID", "PriorityLong", "tres-alloc", "Name",
)  # fmt: skip
DETAIL_FIELDS = (
    *JOB_FIELDS, "ExcNodes", "BatchFlag", "Requeue", "NumNodes", "HetJobID", "STDOUT", "STDERR",
    "WorkDir", "Comment", "admin_comment",
)  # fmt: skip
_ALL = ("squeue", "-a", "-h", "-t", "all")
_UNKNOWN_JOB = "Invalid job id specified"
_ADMIN_HOLD = "JobHeldAdmin"
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')


async def list_jobs(runner: Runner, names: NodeNames) -> list[Job]:
    cutter = Cutter(JOB_FIELDS)
    answer = await runner.run(*_ALL, "-O", cutter.format, at_once=True)
    # In a thread: a hundred thousand jobs take seconds, and agents wait for answers meanwhile.
    return await asyncio.to_thread(lambda: [job_of(row, names) for row in cutter.rows(answer.out)])


async def show_job(runner: Runner, names: NodeNames, job_id: int) -> JobDetail | None:
    """None only where Slurm says itself that it does not know the job.

    Not `scontrol show job`: its `key=value` lines begin with the job's name, in which a user can
    write any other key."""
    cutter = Cutter(DETAIL_FIELDS)
    answer = await runner.run(*_ALL, "-j", str(job_id), "-O", cutter.format, allowed=(0, 1))
    if answer.code != 0:
        if _UNKNOWN_JOB in answer.err:
            return None
        raise SchedulerUnavailable(f"squeue failed for job {job_id}: {answer.err.strip()}")
    # The number of an array's last task is also that of the array: all its tasks are shown.
    rows = [row for row in cutter.rows(answer.out) if number(row["JobID"]) == job_id]
    if not rows:
        return None
    detail = detail_of(rows[0], names)
    if detail.job.waiting and detail.job.held:
        return replace(detail, admin_hold=await _held_by_admin(runner, detail.job))
    return detail


async def _held_by_admin(runner: Runner, job: Job) -> bool:
    """After a requeue the printed reason stays "job requeued in held state" whoever holds the job
    now (seen with 24.11); only the JSON output has the reason itself."""
    answer = await runner.run("squeue", "--json", "-j", str(job.job_id), allowed=range(256))
    if answer.code != 0:
        return job.reason == _ADMIN_HOLD  # built without the JSON serializer
    return state_reason(answer.out, job.job_id) == _ADMIN_HOLD


def state_reason(text: str, job_id: int) -> str:
    """The `state_reason` of one job in squeue's JSON. Raises SchedulerUnavailable."""
    # What is no UTF-8, in a job's name for example, is told by Slurm as it is, and reaches us as
    # `\xff` (Runner), which JSON does not know.
    valid = _ESCAPE.sub(lambda found: found[0] if found[1] else "\\\\", text)
    try:
        found = [job for job in json.loads(valid)["jobs"] if job["job_id"] == job_id]
        return str(found[0]["state_reason"]) if found else ""
    except (ValueError, KeyError, TypeError) as error:
        raise SchedulerUnavailable(f"squeue's JSON can't be read: {error!r}") from None


def job_of(row: dict[str, str], names: NodeNames) -> Job:
    state, task = row["State"].strip(), row["ArrayTaskID"].strip()
    job_id, array = number(row["JobID"]), number(row["ArrayJobID"])
    is_task = task.isdigit()
    return Job(
        job_id=job_id,
        uid=number(row["UserID"]),
        user=words(row["UserName"]),
        name=row["Name"],
        account=words(row["Account"]),
        partition=words(row["Partition"]),
        qos=words(row["QOS"]),
        state=state,
        reason=reason if (reason := words(row["Reason"])) != "None" else "",
        restarts=number(row["RestartCnt"]),
        submitted=number(row["SubmitTime"]),
        started=number(row["StartTime"]),
        ends=number(row["EndTime"]),
        time_limit=seconds(row["TimeLimit"]),
        time_used=seconds(row["TimeUsed"]),
        nodes=names.expand(words(row["NodeList"])),
        array_job_id=array if is_task or words(task) else 0,
        array_task=int(task) if is_task else None,
        held=number(row["PriorityLong"]) == 0,
        tres=words(row["tres-alloc"]),
    )


def detail_of(row: dict[str, str], names: NodeNames) -> JobDetail:
    return JobDetail(
        job=job_of(row, names),
        comment=row["Comment"] if words(row["Comment"]) else "",
        admin_comment=row["admin_comment"] if words(row["admin_comment"]) else "",
        excluded_nodes=words(row["ExcNodes"]),
        batch=number(row["BatchFlag"]) != 0,
        requeue=number(row["Requeue"]) != 0,
        node_count=number(row["NumNodes"].partition("-")[0]),
        het=number(row["HetJobID"]) != 0,
        std_out=words(row["STDOUT"]),
        std_err=words(row["STDERR"]),
        work_dir=words(row["WorkDir"]),
    )
