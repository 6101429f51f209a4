# SPDX-License-Identifier: Apache-2.0
"""Where a managed job lies in Slurm's own order: steps, cgroups, its end, its relay."""

from __future__ import annotations

import re
import time

import pytest

from tests.cluster.spank.bench import FRESH, LOG, NODE

pytestmark = pytest.mark.cluster


def test_slurms_own_tools(bench):
    job = bench.submit("sleep 300 & sleep 301")
    hello = bench.attached(job)
    listed = bench.root(f"scontrol listpids {job}")
    for pid in (hello["relay"], hello["child"]):
        assert re.search(rf"^{pid} +{job} +batch", listed, re.M)
    seen = bench.lab.out("ctl", "srun", "--overlap", f"--jobid={job}", "hostname", user="alice")
    assert seen == NODE
    time.sleep(6)
    stat = bench.lab.out("ctl", "sstat", "-anP", "-j", f"{job}.batch", "-o", "Pids,MaxRSS")
    assert hello["child"] in stat


def test_init_and_all_else_is_in_the_task_cgroup(bench):
    job = bench.submit("sleep 300")
    hello = bench.attached(job)
    init = bench.root(f"pgrep -P {hello['relay']} -x reclaim-init").strip()
    relay = bench.root(f"cat /proc/{hello['relay']}/cgroup")
    assert bench.root(f"cat /proc/{init}/cgroup") == relay
    assert bench.root(f"cat /proc/{hello['child']}/cgroup") == relay
    assert f"job_{job}/step_batch" in relay


def test_the_relay_is_small_and_named(bench):
    job = bench.submit("sleep 300")
    hello = bench.attached(job)
    pid = hello["relay"]
    assert bench.root(f"ps -o comm=,args= -p {pid}").split()[:3] == [
        "reclaim-relay",
        "reclaim-relay",
        str(job),
    ]
    assert int(bench.root(f"grep VmRSS /proc/{pid}/status").split()[1]) < 4096
    assert int(bench.root(f"ls /proc/{pid}/fd | wc -l")) <= 6
    job_fds = bench.root(f"readlink /proc/{pid}/fd/1").strip()
    assert job_fds == f"{bench.out}-{job}"


def test_scancel_leaves_nothing(bench):
    before = bench.root("pgrep -x 'reclaim-.*' | wc -l")
    job = bench.submit(
        "setsid sleep 300.5 & (setsid sleep 300.6 &) ; nohup sleep 300.7 & sleep 300.8"
    )
    hello = bench.attached(job)
    bench.cancel(job)
    bench.ended(job)
    bench.lab.wait(
        "no process of it", lambda: not bench.root("pgrep -f '^sleep 300[.]'", check=False)
    )
    bench.lab.wait("no relay", lambda: bench.root("pgrep -x 'reclaim-.*' | wc -l") == before)
    assert bench.root("sinfo -h -n n1 -o %T").strip() in ("idle", "mixed", "completing")
    assert bench.root(f"ls /proc/{hello['relay']} 2>&1", check=False).count("No such file") == 1


def test_double_forked_daemon_stays_below_the_script(bench):
    job = bench.submit("(setsid sh -c 'sleep 300 & exit' &); sleep 1; "
                       "ps -eo ppid=,comm= | grep sleep; echo done; sleep 300")  # fmt: skip
    assert bench.has(job, "done").split()[:2] == ["300", "sleep"]


def test_held_job_ends_as_a_requeue_wants_it(bench):
    """Hold, the tree dies, the job stays; requeuehold; released, it waits for its image."""
    job = bench.submit("echo started; sleep 300", "--open-mode=append")
    hello = bench.attached(job)
    assert bench.order(job, "cmd=hold")["ok"] == "1"
    bench.root(f"kill -9 {hello['child']}")
    time.sleep(2)
    assert bench.squeue(job) == "RUNNING"
    began = time.monotonic()
    bench.lab.exec("ctl", "scontrol", "requeuehold", "State=SpecialExit", str(job))
    bench.lab.wait("held", lambda: bench.squeue(job) == "SPECIAL_EXIT", 60)
    # Not by the SIGKILL that comes after KillWait.
    assert time.monotonic() - began < 5
    bench.answer("mode=restore", "last_pid=20000")
    bench.lab.exec("ctl", "scontrol", "release", str(job))
    bench.starts(job)
    bench.lab.wait("attached", lambda: any(e.get("mode") == "restore" for e in bench.events(job)))
    assert bench.text(job).count("started") == 1
    assert bench.order(job, "cmd=end", "status=768")["ok"] == "1"
    assert bench.ended(job) == ("FAILED", "3:0")


def test_agent_restart_is_not_noticed_by_the_job(bench):
    job = bench.submit("sleep 8; exit 4")
    bench.attached(job)
    bench.stop_agent()
    time.sleep(1.5)
    bench.root(f"rm -f {LOG}")
    bench.start_agent(*FRESH)
    assert bench.attached(job)["held"] == "0"
    assert bench.ended(job) == ("FAILED", "4:0")


def test_other_steps_are_left_alone(bench):
    """srun, salloc and the extern step: not even asked about."""
    out = bench.lab.out("ctl", "srun", "-w", NODE, "readlink", "/proc/self/ns/mnt", user="alice")
    assert out == bench.root("readlink /proc/self/ns/mnt").strip()
    assert "start" not in bench.root(f"cat {LOG} 2>/dev/null || true")


def test_srun_inside_the_job(bench):
    text, end = bench.run("srun -n1 sh -c 'hostname; echo $SLURM_STEP_ID'; srun -n1 true")
    assert end == ("COMPLETED", "0:0")
    assert text == f"{NODE}\n0"
