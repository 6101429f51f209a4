"""What the agent measures of sessions on a real cluster: use is seen, what is not use is not."""

from __future__ import annotations

import json
import re
import time

import pytest

from slurm_reclaim.config.schema import Idle
from tests.cluster.notebook import put
from tests.cluster.sessions import only

pytestmark = pytest.mark.cluster

PYTHON = "/opt/slurm-reclaim/bin/python"
BURN = "while True: sum(range(100000))"
FLOORS = {
    "cpu": Idle.cpu_floor,
    "io": Idle.io_floor,
    "network": Idle.network_floor,
    "terminal": 1,
}


class Job:
    """A managed job of alice's on n1 that runs a script of hers."""

    def __init__(self, lab, script: str) -> None:
        put(lab, "samples.py")
        self.lab = lab
        home = "/shared/home/alice"
        with only(lab, "n1"):
            self.id = lab.sbatch(f"#!/bin/bash\n{script}\n", "--reclaim=on", "-D", home)
            lab.wait("the session", lambda: self._known(), 60)

    def _known(self) -> bool:
        path = f"/var/lib/slurm-reclaim/sessions/{self.id}.json"
        return self.lab.exec("n1", "test", "-e", path, check=False).returncode == 0

    def sample(self, seconds: float = 3.0) -> dict:
        """The readings of one sample, by signal."""
        done = self.lab.exec("n1", PYTHON, "/shared/inside/samples.py", str(self.id), str(seconds))
        (sample,) = json.loads(done.stdout)
        return sample["readings"]

    def wait_until_used(self, signal: str, patience: float = 60) -> dict:
        seen = []

        def used() -> bool:
            seen.append(self.sample())
            value = seen[-1][signal]["value"]
            return value is not None and value >= FLOORS[signal]

        self.lab.wait(f"use by {signal}", used, patience)
        return seen[-1]


@pytest.fixture
def start(lab):
    jobs = []

    def start(script: str) -> Job:
        jobs.append(Job(lab, script))
        return jobs[-1]

    yield start
    for job in jobs:
        lab.exec("ctl", "scancel", str(job.id), check=False)


def unused(readings: dict, *besides: str) -> None:
    for name, floor in FLOORS.items():
        if name not in besides:
            assert readings[name]["value"] is not None, (name, readings[name])
            assert readings[name]["value"] < floor, (name, readings[name])


def test_a_session_that_sleeps_uses_nothing(start):
    job = start("sleep 1000 & sleep 1000")
    time.sleep(2)
    readings = job.sample(5)
    unused(readings)
    assert readings["terminal"]["what"] == "no terminal"


@pytest.mark.parametrize(
    "script",
    [
        f"python3 -c \"import threading, time; threading.Thread(target=lambda: exec('{BURN}'),"
        ' daemon=True).start(); time.sleep(1000)"',
        f'nohup setsid python3 -c "{BURN}" > /dev/null 2>&1 &\nsleep 1000',
    ],
    ids=["thread", "nohup"],
)
def test_work_behind_a_program_that_waits_counts(start, script):
    """C22."""
    job = start(script)
    unused(job.wait_until_used("cpu"), "cpu", "io")


def test_a_step_that_computes_counts(lab, start):
    job = start("sleep 1000")
    step = f"srun --jobid={job.id} --overlap python3 -c '{BURN}' > /dev/null 2>&1 &"
    lab.exec("ctl", "sh", "-c", step, user="alice")
    unused(job.wait_until_used("cpu"), "cpu", "io")


def test_a_slow_download_from_another_node_counts(lab, start):
    """C29: next to no CPU, nothing typed."""
    put(lab, "trickle.py")
    port = 20000 + int(time.time() * 10) % 20000
    serve = f"python3 /shared/inside/trickle.py {port} 60000 > /dev/null 2>&1 & echo $!"
    server = lab.out("n2", "sh", "-c", serve)
    try:
        code = (
            "import socket, time\n"
            "while True:\n"
            f"    try: c = socket.create_connection(('n2', {port}))\n"
            "    except OSError: time.sleep(0.2)\n"
            "    else: break\n"
            "while c.recv(65536): time.sleep(0.2)\n"
        )
        job = start(f"python3 - <<'E'\n{code}\nE")
        readings = job.wait_until_used("network")
        unused(readings, "network")
        assert 30_000 < readings["network"]["value"] < 120_000
    finally:
        lab.exec("n2", "kill", server, check=False)


@pytest.mark.parametrize("where", ["$HOME", "/tmp"])
def test_a_program_that_writes_files_counts(start, where):
    """On the home's file system and on the node's own; next to no CPU."""
    job = start(
        f"while sleep 1; do head -c 1000000 /dev/zero > {where}/written-$SLURM_JOB_ID; done"
    )
    readings = job.wait_until_used("io")
    unused(readings, "io")
    assert readings["io"]["value"] < 10_000_000


def test_output_on_a_terminal_is_not_use(start):
    """C35."""
    job = start('export TERM=xterm; script -qc "watch -n1 date" /dev/null > /dev/null')
    time.sleep(3)
    job.sample(1)
    readings = job.sample(10)
    unused(readings)
    assert readings["terminal"]["what"] == "no input"


def test_typing_is_use(start):
    code = (
        "import os, pty, time\n"
        "pid, master = pty.fork()\n"
        "if not pid: os.execvp('cat', ['cat'])\n"
        "while True:\n"
        "    time.sleep(9)\n"
        "    os.write(master, b'typed\\n')\n"
        "    os.read(master, 1000)\n"
    )
    job = start(f"python3 - <<'E'\n{code}\nE")
    readings = job.wait_until_used("terminal")
    unused(readings, "terminal")
    assert abs(readings["terminal"]["last"] - time.time()) < 20
    assert readings["terminal"]["what"].startswith("input on pts/")


ADOPT = """
import os, pty, sys, time
for top in ("freezer", "cpuacct", "memory", "cpuset", "."):
    base = f"/sys/fs/cgroup/{top}"
    for at, _, names in os.walk(base):
        if f"/job_{sys.argv[1]}/step_extern" in at and "cgroup.procs" in names:
            try:
                open(f"{at}/cgroup.procs", "w").write("0")
            except OSError:
                pass
os.setgid(2001), os.setuid(2001)
pid, master = pty.fork()
if not pid: os.execvp("cat", ["cat"])
print(pid, flush=True)
time.sleep(1)
for _ in range(20):
    os.write(master, b"typed\\n")
    os.read(master, 1000)
    time.sleep(9)
"""


def test_a_login_adopted_into_the_job_counts(lab, start):
    """As pam_slurm_adopt does it: into the cgroups of the extern step."""
    job = start("sleep 1000")
    adopted = lab.out(
        "n1", "sh", "-c", f"python3 -c '{ADOPT}' {job.id} > /tmp/login.out 2>&1 & echo $!"
    )
    try:
        readings = job.wait_until_used("terminal")
        assert readings["terminal"]["what"].startswith("input on login on pts/")
        unused(readings, "terminal", "io")
    finally:
        lab.exec("n1", "kill", adopted, check=False)


def test_a_restore_makes_no_spike(lab, start, request):
    """C56: by the agent's own samples, before and after."""
    level = "/etc/slurm-reclaim/conf.d/zz-test.toml"
    lab.exec("n1", "sh", "-c", f"printf '[logging]\\nlevel = \"debug\"\\n' > {level}")
    lab.restart_daemon("n1", "reclaim-agent")
    try:
        job = start(
            "python3 -c 'import time\nend = time.time() + 4\nwhile time.time() < end: pass'\n"
            "dd if=/dev/zero of=/dev/null bs=1M count=2000 status=none\nsleep 1000"
        )
        lab.wait("samples", lambda: len(agent_samples(lab, job.id)) > 1, 60)
        with only(lab, "n1"):
            lab.exec("ctl", "reclaim", "hibernate", str(job.id), user="alice")
            lab.exec("ctl", "reclaim", "restore", str(job.id), user="alice")
            before = len(agent_samples(lab, job.id))
            lab.wait("new samples", lambda: len(agent_samples(lab, job.id)) > before + 2, 90)
            # Another agent has nothing to compare with.
            lab.restart_daemon("n1", "reclaim-agent")
            more = len(agent_samples(lab, job.id))
            lab.wait("its samples", lambda: len(agent_samples(lab, job.id)) > more + 2, 90)
        after = agent_samples(lab, job.id)[before:]
        assert all(sample["cpu"] < FLOORS["cpu"] for sample in after), after
        assert all(sample["io"] < FLOORS["io"] for sample in after), after
    finally:
        lab.exec("n1", "rm", "-f", level)
        lab.restart_daemon("n1", "reclaim-agent")


def agent_samples(lab, job: int) -> list[dict[str, float]]:
    """The values of each sample that the agent of n1 has logged of a job; unknown is -1."""
    found = []
    for line in lab.logs("n1", "reclaim-agent").splitlines():
        if f"node_samples: job={job} " in line:
            pairs = re.findall(r"'([a-z-]+)': Reading\(value=([0-9.e+-]+|None)", line)
            found.append({name: -1.0 if v == "None" else float(v) for name, v in pairs})
    return found
