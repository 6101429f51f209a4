"""To Slurm a restored session is what it was: its signals, limits, tools, cgroups and output."""

from __future__ import annotations

import math
import time

import pytest

from slurm_reclaim.adapters.slurm.values import seconds
from tests.cluster.sessions import Counter, only, outside_of_job
from tests.cluster.spank.test_signals import WATCH
from tests.cluster.test_hibernate import program

pytestmark = pytest.mark.cluster
HOME = "/shared/home/alice"


def batch(lab, script: str, *options: str) -> Counter:
    job = lab.sbatch(f"#!/bin/bash\n{script}\n", "-D", HOME, "-o", "%j.out", *options)
    return Counter(lab, job, "alice")


def moved(lab, job: Counter) -> None:
    """Hibernated on n1, restored on n2: by the other names of the commands."""
    job.reclaim("pause")
    with only(lab, "n2"):
        job.reclaim("resume")
    assert job.node == "n2"


@pytest.fixture(scope="module")
def elder(lab):
    """A session that gets old while the others are looked at: bob's, who has no other."""
    job = Counter.start(lab, "--time=30", "--mem=100M", user="bob")
    yield job
    job.cancel()


# -- signals ------------------------------------------------------------------------------------


@pytest.fixture
def watchers(lab):
    """Of one job without us and one that was restored, the same three watchers (spank/)."""
    with only(lab, "n1"):
        jobs = [batch(lab, WATCH, f"--reclaim={word}") for word in ("off", "on")]
        for job in jobs:
            lab.wait("three watchers", lambda job=job: ready(job) == 3)
    jobs[1].wait_for_session("ACTIVE")
    moved(lab, jobs[1])
    yield jobs
    for job in jobs:
        lab.exec("ctl", "scancel", "-s", "KILL", str(job.job), check=False)
        job.cancel()


def ready(job: Counter) -> int:
    return words(job).count("ready")


def words(job: Counter) -> list[str]:
    """What its watchers said; bash's own word of a nap that was hit depends on the moment."""
    done = job.lab.exec(job.node or "n1", "cat", f"{HOME}/{job.job}.out", check=False)
    lines = [line.split() for line in done.stdout.splitlines()]
    return [
        line[1] if line[1] == "ready" else " ".join(line)
        for line in lines
        if len(line) == 2 and line[0] in ("script", "mate", "loner")
    ]


def heard(jobs: list[Counter], before: list[list[str]]) -> list[list[str]]:
    """What was said since `before`, once nobody has said more for two seconds."""
    last, quiet = [[""]], 0
    while quiet < 5:
        time.sleep(0.4)
        now = [words(job) for job in jobs]
        last, quiet = now, quiet + 1 if now == last else 0
    return [sorted(now[len(was) :]) for now, was in zip(last, before, strict=True)]


def test_signals_reach_it_as_any_job(lab, elder, watchers):
    for how in ((), ("--batch",), ("--full",)):
        before = [words(job) for job in watchers]
        for name in ("USR1", "HUP", "TERM", "CONT", "INT"):
            for job in watchers:
                lab.exec("ctl", "scancel", *how, "-s", name, str(job.job))
            time.sleep(0.5)
        plain, restored = heard(watchers, before)
        assert restored == plain, how
        assert ("script USR1" in plain) or not how
    before = [words(job) for job in watchers]
    for verb, state in (("suspend", "SUSPENDED"), ("resume", "RUNNING")):
        for job in watchers:
            lab.exec("ctl", "scontrol", verb, str(job.job))
            job.wait_for(state)
        time.sleep(2.5)
    plain, restored = heard(watchers, before)
    assert restored == plain
    before = [words(job) for job in watchers]
    for job in watchers:
        job.cancel()
    for job in watchers:
        lab.wait("its end", lambda job=job: lab.job_state(job.job) == "CANCELLED", 40)
    plain, restored = heard(watchers, before)
    assert restored == plain
    assert "script TERM" in plain


def test_the_time_limit_warns_it_and_ends_it(lab):
    script = (
        "trap 'echo warned' USR1; trap 'echo got term' TERM; echo ready\n"
        "while :; do sleep 0.2; done"
    )
    with only(lab, "n1"):
        job = batch(lab, script, "--reclaim=on", "-t", "10", "--signal=B:USR1@60")
        job.wait_for_session("ACTIVE")
        lab.wait("its traps", lambda: "ready" in job.output())
    try:
        moved(lab, job)
        for seconds, word in ((50, "warned"), (1, "got term")):
            change = f"endtime=now+{seconds}"
            lab.exec("ctl", "scontrol", "update", f"jobid={job.job}", change)
            lab.wait(word, lambda word=word: word in job.output(), 90)
        lab.wait("its end", lambda: lab.job_state(job.job) == "TIMEOUT", 90)
    finally:
        job.cancel()


# -- its place ----------------------------------------------------------------------------------


def test_slurms_tools_find_it(lab, counter):
    with only(lab, "n1"):
        job = counter()
    moved(lab, job)
    pids = lab.out("n2", "pgrep", "-u", "alice").split()
    assert len(pids) >= 2
    listed = lab.out("n2", "scontrol", "listpids", str(job.job)).splitlines()
    batch_pids = {line.split()[0] for line in listed if line.split()[2:3] == ["batch"]}
    assert set(pids) <= batch_pids
    step = ("srun", "--overlap", f"--jobid={job.job}", "hostname")
    assert lab.out("ctl", *step, user="alice") == "n2"

    def pids_by_sstat() -> set[str]:
        stat = ("sstat", "-anP", "-j", f"{job.job}.batch", "-o", "Pids")
        return set(lab.out("ctl", *stat).replace(",", " ").split())

    lab.wait("sstat to know its processes", lambda: set(pids) <= pids_by_sstat())


def test_every_process_is_in_the_jobs_own_cgroups(lab, counter):
    with only(lab, "n1"):
        job = counter()
    moved(lab, job)
    assert outside_of_job(lab, "n2") == {}


EAT = """exec python3 -c '
import os, time
count, say = 0, os.environ["SAY"]
while not os.path.exists(say + ".eat"):
    count += 1
    open(say, "w").write(str(count))
    time.sleep(0.2)
x = os.urandom(1 << 20) * 400
open(say, "w").write("ate")
time.sleep(60)'"""


def test_its_memory_limit_ends_it(lab):
    with only(lab, "n1"):
        job = program(lab, EAT, "--mem=150M")
    try:
        moved(lab, job)
        lab.exec("ctl", "touch", f"{job.path}.eat", user="alice")
        lab.wait("its end", lambda: lab.job_state(job.job) == "OUT_OF_MEMORY", 40)
        assert lab.out("ctl", "cat", job.path) != "ate"
    finally:
        job.cancel()


# -- what it writes -----------------------------------------------------------------------------

LINES = """exec python3 -u -c '
import os, sys, time
count = 0
while True:
    count += 1
    print(count)
    print("error", count, file=sys.stderr)
    open(os.environ["SAY"], "w").write(str(count))
    time.sleep(0.1)'"""


@pytest.mark.parametrize("mode", ["truncate", "append"])
def test_each_of_its_lines_is_there_once(lab, mode):
    """Through the descriptors that it has had from its start, of two files."""
    with only(lab, "n1"):
        job = program(lab, LINES, f"--open-mode={mode}", "-e", "%j.err")
    try:
        for _ in range(2):
            count = int(lab.out("ctl", "cat", job.path) or 0)
            job.reclaim("hibernate")
            job.reclaim("restore")
            lab.wait("its next lines", lambda count=count: last(lab, job) > count + 5)
        lab.exec("ctl", "scancel", "-s", "STOP", "--batch", str(job.job))
        stopped = ("pgrep", "-u", "alice", "-x", "-r", "T", "python3")  # after the relay
        lab.wait("it to stop", lambda: lab.exec(job.node, *stopped, check=False).stdout)
        out = numbers(lab, job, "out")
        assert out == list(range(1, len(out) + 1))
        errors = numbers(lab, job, "err")
        assert errors == out[: len(errors)]
        assert len(out) - len(errors) <= 1
    finally:
        lab.exec("ctl", "scancel", "-s", "CONT", "--batch", str(job.job), check=False)
        job.cancel()


def last(lab, job: Counter) -> int:
    return int(lab.out("ctl", "cat", job.path) or 0)


def numbers(lab, job: Counter, end: str) -> list[int]:
    """The last word of each line, read where it is written: elsewhere NFS may be behind. What
    slurmstepd has written of the requeue is not its own."""
    text = lab.out(job.node, "cat", f"{HOME}/{job.job}.{end}", user="alice")
    lines = [line for line in text.splitlines() if not line.startswith("slurmstepd")]
    return [int(line.split()[-1]) for line in lines]


# -- its time -----------------------------------------------------------------------------------


def test_it_has_the_time_that_was_left(lab, elder):
    """In Slurm's whole minutes, and no more of it after each restore."""
    lab.wait("a minute to be over", lambda: seconds(elder.squeue("%M")) > 65, 90)

    def runs() -> list[int]:
        """Seconds of those that are over."""
        rows = lab.out("ctl", "sacct", "-DXnP", "-j", str(elder.job), "-o", "State,ElapsedRaw")
        return [int(row.split("|")[1]) for row in rows.splitlines() if row[:8] == "REQUEUED"]

    for count in (1, 2):
        elder.reclaim("hibernate")
        lab.wait("the run in accounting", lambda count=count: len(runs()) == count)
        used = sum(runs())
        # It was asked how long it had run some seconds before its end.
        possible = {math.ceil((1800 - used + late) / 60) * 60 for late in range(10)}

        def limited(possible: set[int] = possible) -> bool:
            return seconds(elder.squeue("%l")) in possible

        lab.wait(f"a limit of {possible}", limited)  # put on the job once it is seen held
        elder.reclaim("restore")
        assert limited()
        elder.counts_on()
