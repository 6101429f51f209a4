"""Signals, suspension, time limits, memory and `scancel` of restored sessions under cgroup v2."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.sessions import Counter

# Says what it hears; ends a second after the first SIGTERM, of itself.
LISTENER = r"""#!/bin/bash
exec python3 -c '
import os, signal, sys, time
path = os.path.expanduser("~/count-" + os.environ["SLURM_JOB_ID"])
heard, end = [], 0
def hear(number, frame):
    global end
    heard.append(signal.Signals(number).name)
    print("heard", heard[-1], flush=True)
    if number == signal.SIGTERM and not end:
        end = time.monotonic() + 1
for name in ("HUP", "USR1", "USR2", "INT", "TERM"):
    signal.signal(getattr(signal, "SIG" + name), hear)
count = 0
held = b""
while not end or time.monotonic() < end:
    count += 1
    with open(path + ".new", "w") as file:
        file.write(f"{count} {os.getpid()} {os.uname().nodename} True")
    os.rename(path + ".new", path)
    if os.path.exists(path + ".grow"):
        held += os.urandom(50 << 20)
    time.sleep(0.2)
sys.exit(int(os.path.exists(path + ".fail")) * 7)
'
"""
Submit = Callable[..., Counter]


@pytest.fixture
def submit(lab: Lab):
    started: list[Counter] = []

    def start(*options: str, reclaim: str = "on") -> Counter:
        words = [f"--reclaim={reclaim}", "--output", "%j.out", "-D", "/shared/home/alice"]
        job = Counter(lab, lab.sbatch(LISTENER, *words, *options), "alice")
        started.append(job)
        lab.wait("the first count", lambda: job.seen(check=False))
        if reclaim == "on":
            job.wait_for_session("ACTIVE")
        return job

    yield start
    for one in started:
        one.cancel()


def restored(submit: Submit, *options: str) -> Counter:
    job = submit(*options)
    job.reclaim("hibernate")
    job.reclaim("restore")
    job.counts_on()
    return job


def pair(submit: Submit, *options: str) -> tuple[Counter, Counter]:
    """One without us, and one that was restored."""
    return submit(*options, reclaim="off"), restored(submit, *options)


def said(job: Counter) -> list[str]:
    """Read where it runs: what is written there may reach the file server half a minute later."""
    path = f"/shared/home/alice/{job.job}.out"
    lines = job.lab.out(job.node or "ctl", "cat", path, user="alice").splitlines()
    return [line for line in lines if line.startswith("heard ")]


def end(job: Counter, patience: float = 60) -> tuple[str, str]:
    """JobState and ExitCode, once there is no more of it on its node."""

    def over() -> tuple[str, str] | None:
        shown = job.lab.out("ctl", "scontrol", "show", "job", str(job.job))
        state, code = (re.search(rf"\b{n}=(\S+)", shown)[1] for n in ("JobState", "ExitCode"))  # type: ignore[index]
        busy = ("RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "SUSPENDED")
        return None if state in busy else (state, code)

    return job.lab.wait(f"the end of job {job.job}", over, patience)  # type: ignore[return-value]


def test_signals_reach_a_restored_session(lab: Lab, submit: Submit) -> None:
    jobs = pair(submit)
    for how in (("--batch",), ("--full",)):
        for name in ("USR1", "HUP"):
            for number, job in enumerate(jobs):
                lab.exec("ctl", "scancel", *how, "-s", name, str(job.job))
                want = f"heard SIG{name}"
                count = said(jobs[0]).count(want) if number else 1
                lab.wait(want, lambda j=job, w=want, c=count: said(j).count(w) >= c)
    for job in jobs:
        lab.exec("ctl", "scancel", "--full", "-s", "TERM", str(job.job))
    plain, ours = (end(job) for job in jobs)
    assert ours == plain == ("COMPLETED", "0:0")
    assert said(jobs[1]) == said(jobs[0])
    jobs[1].wait_for_session("ENDED")


def test_a_restored_session_is_cancelled_like_others(lab: Lab, submit: Submit) -> None:
    jobs = pair(submit)
    for job in jobs:
        job.cancel()
    plain, ours = (end(job) for job in jobs)
    assert ours == plain
    assert plain[0] == "CANCELLED"
    assert said(jobs[1]) == said(jobs[0])


def test_a_restored_sessions_time_limit(lab: Lab, submit: Submit) -> None:
    """With a signal before it, which the option gives for each run."""
    jobs = pair(submit, "-t", "10", "--signal=B:USR2@60")
    for job in jobs:
        lab.exec("ctl", "scontrol", "update", f"jobid={job.job}", "endtime=now+50")
    plain, ours = (end(job, 40) for job in jobs)
    assert ours == plain
    assert plain[0] == "TIMEOUT"
    assert said(jobs[1]) == said(jobs[0])
    assert "heard SIGUSR2" in said(jobs[0])


def test_what_a_restored_session_exits_with_is_the_jobs(lab: Lab, submit: Submit) -> None:
    jobs = pair(submit)
    for job in jobs:
        lab.exec("ctl", "touch", f"{job.path}.fail", user="alice")
        lab.exec("ctl", "scancel", "--batch", "-s", "TERM", str(job.job))
    assert [end(job) for job in jobs] == [("FAILED", "7:0")] * 2


def test_a_restored_session_that_takes_too_much_memory(lab: Lab, submit: Submit) -> None:
    """By itself, not in a step of its own: the kernel ends it and Slurm says why."""
    jobs = pair(submit, "--mem", "300M")
    for job in jobs:
        lab.exec("ctl", "touch", f"{job.path}.grow", user="alice")
    plain, ours = (end(job) for job in jobs)
    assert ours == plain
    assert plain[0] == "OUT_OF_MEMORY"
    accounted = [lab.job_state(job.job) for job in jobs]
    assert accounted == ["OUT_OF_MEMORY"] * 2


def test_a_restored_session_that_is_suspended(lab: Lab, submit: Submit) -> None:
    """cgroup.freeze of version 2, which the kernel keeps apart from SIGSTOP."""
    job = restored(submit)
    lab.exec("ctl", "scontrol", "suspend", str(job.job))
    job.wait_for("SUSPENDED")
    script = f"sleep 1; cat {shlex.quote(job.path)}; sleep 3; echo; cat {shlex.quote(job.path)}"
    first, second = lab.out("ctl", "sh", "-c", script).splitlines()
    assert first == second
    lab.exec("ctl", "scontrol", "resume", str(job.job))
    job.counts_on()
    job.wait_for_session("ACTIVE")
    job.reclaim("hibernate")
    job.reclaim("restore")
    job.counts_on()
