# SPDX-License-Identifier: Apache-2.0
"""Signals, suspension, the time limit and a requeue reach a managed job as any other."""

from __future__ import annotations

import re
import time

import pytest

from tests.cluster.spank.bench import FRESH, NODE, Bench

pytestmark = pytest.mark.cluster


WATCH = r"""
watch() {
    for s in HUP INT QUIT USR1 USR2 TERM CONT TSTP; do trap "echo $1 $s" $s; done
    echo $1 ready
    for i in $(seq 1200); do read -t 0.05 < <(:) || true; command sleep 0.05; done
}
watch mate &
setsid bash -c "$(declare -f watch); watch loner" &
watch script
"""


def listen(bench: Bench) -> int:
    job = bench.submit(WATCH)
    bench.lab.wait("three watchers", lambda: bench.text(job).count("ready") == 3)
    return job


def listeners(bench: Bench) -> list[int]:
    """One without us and one with us, side by side: what is waited for is waited for once."""
    jobs = []
    for answer in (("mode=ignore",), FRESH):
        bench.answer(*answer)
        jobs.append(listen(bench))
    return jobs


def heard(bench: Bench, jobs: list[int]) -> list[list[str]]:
    """What the watchers of each job have said, once all have been quiet for two seconds."""
    last, quiet = [""], 0
    while quiet < 5:  # a busy machine takes its time
        time.sleep(0.4)
        now = [bench.text(job) for job in jobs]
        last, quiet = now, quiet + 1 if now == last else 0
    # What bash itself says of a `sleep` that was hit ("Hangup") depends on the moment.
    ours = ("script ", "mate ", "loner ")
    return [
        sorted(x for x in text.split("\n") if x.startswith(ours) and "ready" not in x)
        for text in last
    ]


@pytest.mark.parametrize("how", [(), ("--batch",), ("--full",)])
def test_scancel_with_a_signal(bench, how):
    jobs = listeners(bench)
    for name in ("USR1", "HUP", "TERM", "CONT", "INT"):
        for job in jobs:
            bench.cancel(job, *how, "-s", name)
        plain, managed = heard(bench, jobs)
        assert managed == plain
        assert (f"script {name}" in plain) or not how


def test_suspend_and_resume(bench):
    jobs = listeners(bench)
    for job in jobs:
        bench.lab.exec("ctl", "scontrol", "suspend", str(job))
    for job in jobs:
        bench.lab.wait("suspended", lambda job=job: bench.squeue(job) == "SUSPENDED")
    time.sleep(2.5)
    for job in jobs:
        assert bench.root(f"scontrol listpids {job} | awk 'NR>1{{print $1}}'").split()
        bench.lab.exec("ctl", "scontrol", "resume", str(job))
    plain, managed = heard(bench, jobs)
    assert managed == plain


@pytest.fixture(params=["no", "yes"])
def signal_children(bench, request):
    """Whether Slurm signals the task process or every process of a step."""
    conf = "/etc/slurm/cgroup.conf"
    try:
        bench.root(f"echo SignalChildrenProcesses={request.param} >> {conf}")
        bench.lab.restart_daemon(NODE, "slurmd")
        yield request.param
    finally:
        bench.root(f"sed -i /SignalChildren/d {conf}")
        bench.lab.restart_daemon(NODE, "slurmd")


def test_plain_scancel(bench, signal_children):
    """SIGCONT and SIGTERM, by way of the process tracking; SIGKILL after KillWait."""
    jobs = listeners(bench)
    for job in jobs:
        bench.cancel(job)
    for job in jobs:
        bench.ended(job)
    plain, managed = heard(bench, jobs)
    assert managed == plain
    assert "script TERM" in plain
    assert ("loner TERM" in plain) == (signal_children == "yes")


def test_stopped_and_continued(bench):
    def state() -> str:
        return bench.root("ps -o state= -p $(pgrep -f '^sleep 60.5')").strip()

    states = []
    for answer in (("mode=ignore",), FRESH):
        bench.answer(*answer)
        job = bench.submit("echo ready; exec sleep 60.5")
        bench.has(job, "ready")
        for name, want in (("STOP", "T"), ("CONT", "S"), ("TSTP", "T"), ("CONT", "S")):
            bench.cancel(job, "--batch", "-s", name)
            bench.lab.wait(f"{want} after {name} ({answer[0]})",
                           lambda want=want: state() == want, 10)  # fmt: skip
            states.append(want)
        bench.cancel(job)
        bench.ended(job)
    assert len(states) == 8


def test_time_limit(bench):
    """Slurm looks at time limits twice a minute, so all four jobs wait together."""
    jobs = []
    for trap in ("exit 3", "echo got term"):
        for answer in (("mode=ignore",), FRESH):
            bench.answer(*answer)
            text = f"trap '{trap}' TERM; echo ready; while :; do sleep 0.2; done"
            jobs.append(bench.submit(text, "-t", "1"))
            bench.has(jobs[-1], "ready")
    bench.end_soon(*jobs)
    ends = [bench.ended(job, 180) for job in jobs]
    texts = [re.sub(r"[*]{3}.*", "", bench.text(job)) for job in jobs]
    assert [state for state, _ in ends] == ["TIMEOUT"] * 4
    assert (ends[1], texts[1]) == (ends[0], texts[0])
    assert (ends[3], texts[3]) == (ends[2], texts[2])
    assert "got term" in texts[2]


def test_signal_before_the_end(bench):
    """Due only once both run, however long their start took."""
    jobs = []
    for answer in (("mode=ignore",), FRESH):
        bench.answer(*answer)
        text = "trap 'echo warned; exit 0' USR1; echo ready; while :; do sleep 0.2; done"
        jobs.append(bench.submit(text, "-t", "10", "--signal=B:USR1@60"))
        bench.has(jobs[-1], "ready")
    bench.end_soon(*jobs, seconds=50)
    for job in jobs:
        assert bench.ended(job, 180) == ("COMPLETED", "0:0")
        assert "warned" in bench.text(job)


def test_requeue_runs_the_script_again(bench):
    results = []
    for answer in (("mode=ignore",), FRESH):
        bench.answer(*answer)
        job = bench.submit("echo run ${SLURM_RESTART_COUNT-none}; trap 'echo term; exit' TERM; "
                           "while :; do sleep 0.2; done", "--open-mode=append")  # fmt: skip
        bench.has(job, "run none")
        bench.lab.exec("ctl", "scontrol", "requeue", str(job))
        bench.lab.wait("pending", lambda job=job: bench.squeue(job) == "PENDING", 60)
        bench.starts(job)
        bench.has(job, "run 1", 60)
        results.append(re.sub(r"[*]{3}.*", "", bench.text(job)))
        bench.cancel(job)
    assert results[1] == results[0]
    attaches = [e for e in bench.events(job) if e.get("op") == "attach"]
    assert [e["restarts"] for e in attaches] == ["0", "1"]
