"""Rules choose jobs by what Slurm itself tells of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.sessions import Counter, configured

pytestmark = pytest.mark.cluster
RULES = """
[[adopt]]
name = "left alone"
manage = false
job_name = ["nb-tmp*"]
[[adopt]]
partition = ["gpu"]
[[adopt]]
qos = ["cour*"]
[[adopt]]
account = ["physics"]
[[adopt]]
user = ["bob"]
[[adopt]]
job_name = ["nb-?"]
"""
# Options of a job, its user, and whether a rule takes it in.
JOBS = {
    "no rule": ((), "alice", False),
    "partition": (("-p", "gpu"), "alice", True),
    "qos": (("--qos=course",), "alice", True),
    "account": (("-A", "physics"), "alice", True),
    "user": ((), "bob", True),
    "job name": (("-J", "nb-7"), "alice", True),
    "another name": (("-J", "nb-77"), "alice", False),
    "by its environment": (("--export=ALL,SLURM_JOB_USER=bob",), "alice", False),
    "submitted in a heterogeneous job": (
        ("--reclaim=on", "--export=ALL,SLURM_HET_SIZE=2,SLURM_JOB_ID_HET_GROUP_0=1"),
        "alice",
        True,
    ),
    "an earlier rule": (("-p", "gpu", "-J", "nb-tmp1"), "alice", False),
    "the user's no": (("-p", "gpu", "--reclaim=off"), "alice", False),
}


@contextmanager
def known_to_slurm(lab) -> Iterator[None]:
    def tell(*words: str, check: bool = True) -> None:
        lab.exec("ctl", "sacctmgr", "-iQ", *words, check=check)

    try:
        tell("add", "qos", "course")
        tell("modify", "user", "alice", "set", "qos+=course")
        tell("add", "account", "physics")
        tell("add", "user", "alice", "account=physics")
        yield
    finally:
        tell("delete", "user", "alice", "account=physics", check=False)
        tell("delete", "account", "physics", check=False)
        tell("modify", "user", "alice", "set", "qos-=course", check=False)
        tell("delete", "qos", "course", check=False)


def started(lab, what: str) -> Counter:
    options, user, _ = JOBS[what]
    words = ["--mem=100M", "-D", "/tmp", "-o", "/dev/null", *options]
    job = Counter(lab, lab.sbatch("#!/bin/sh\nsleep 600\n", *words, user=user), user)
    job.wait_for("RUNNING")
    return job


def test_jobs_are_chosen_by_rules(lab):
    with (
        known_to_slurm(lab),
        configured(lab, "n1", "reclaim-agent", RULES),
        configured(lab, "n2", "reclaim-agent", RULES),
    ):
        alone = {what: started(lab, what) for what in JOBS if not JOBS[what][2]}
        try:
            for what in JOBS:
                if JOBS[what][2]:
                    job = started(lab, what)
                    try:
                        job.wait_for_session("ACTIVE")
                    finally:
                        job.cancel()
            # These began before, and every agent has reported since.
            assert [what for what, job in alone.items() if job.session()["state"]] == []
        finally:
            for job in alone.values():
                job.cancel()
            assert not lab.jobs_left(60)
