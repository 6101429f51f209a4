"""Makes the recordings below recorded/: run it on a host of a test cluster, as a Slurm operator.

tests/cluster/lab exec ctl --user alice -- bash -s < tests/unit/slurm/odd_jobs.sh
tests/cluster/lab exec ctl -- python3 - < tests/unit/slurm/recorder.py > recorded/24.11.json
"""

import json
import os
import subprocess
import sys

# As slurm_reclaim.adapters.slurm does it, with a separator that stays the same.
TOKEN = "0123456789abcdef01234567"
JOB = [
    "JobID", "UserID", "UserName", "Account", "Partition", "QOS", "State", "Reason",
    "RestartCnt", "SubmitTime", "StartTime", "EndTime", "TimeLimit", "TimeUsed", "NodeList",
    "ArrayJobID", "ArrayTaskID", "PriorityLong", "tres-alloc", "Name",
]  # fmt: skip
DETAIL = [
    "ExcNodes", "BatchFlag", "Requeue", "NumNodes", "HetJobID", "STDOUT", "STDERR", "WorkDir",
    "Comment", "admin_comment",
]  # fmt: skip
NODE = ["NodeList", "StateComplete", "Partition", "NodeAddr", "NodeHost"]
EVERY = ("squeue", "-a", "-h", "-t", "all")
HELD = "asleep,held by an operator"
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s",
    **{k: os.environ[k] for k in ("SLURM_CONF",) if k in os.environ},
}  # fmt: skip


def form(fields):
    *first, last = fields
    return ",".join([*(f"{f}:|{TOKEN}|" for f in first), f"{last}:|{TOKEN}/|"])


def ask(*command):
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=False)
    return {
        "code": done.returncode,
        "out": done.stdout.decode("utf-8", "backslashreplace"),
        "err": done.stderr.decode("utf-8", "backslashreplace"),
    }


def numbers(*more):
    out = ask("squeue", "-a", "-h", "-t", "PD,R,SE,CD,NF", *more, "-O", "JobID:")["out"]
    return sorted({int(line) for line in out.split()})


def record():
    json.dump(
        {
            "jobs": ask(*EVERY, "-O", form(JOB)),
            "nodes": ask("sinfo", "-a", "-h", "-N", "-O", form(NODE)),
            "details": {
                str(n): ask(
                    "squeue", "-a", "-h", "-t", "all", "-j", str(n), "-O", form(JOB + DETAIL)
                )
                for n in [*numbers(), 999999]
            },
            "json": {str(n): ask("squeue", "--json", "-j", str(n)) for n in numbers("-n", HELD)},
        },
        sys.stdout,
        indent=1,
    )


if __name__ == "__main__":
    record()
