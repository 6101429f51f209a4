"""Sessions in cgroup v2, in the scope that systemd gave slurmd: adopted, limited, restored."""

from __future__ import annotations

from collections.abc import Callable

from tests.cluster.conftest import Lab
from tests.cluster.sessions import Counter

Start = Callable[..., Counter]


def groups(lab: Lab, node: str, user: str = "alice") -> set[str]:
    """The cgroup of every process of the user there, and of reclaim-init."""
    script = f"for p in $(pgrep -u {user}) $(pgrep -x reclaim-init); do cat /proc/$p/cgroup; done"
    said = lab.exec(node, "sh", "-c", script, check=False).stdout
    return set(said.split())


def job_group(node: str, job: int) -> str:
    return f"/system.slice/{node}_slurmstepd.scope/job_{job}"


def number(lab: Lab, node: str, path: str, row: str = "") -> int:
    text = lab.out(node, "cat", f"/sys/fs/cgroup{path}")
    return int(text if not row else dict(line.split() for line in text.splitlines())[row])


def test_the_controllers_are_those_of_version_2(lab: Lab) -> None:
    assert lab.out("n1", "stat", "-f", "-c", "%T", "/sys/fs/cgroup") == "cgroup2fs"
    assert {"cpu", "memory"} <= set(
        lab.out("n1", "cat", "/sys/fs/cgroup/cgroup.controllers").split()
    )


def test_a_restored_session_is_in_its_new_jobs_cgroup_and_its_limit(
    lab: Lab, counter: Start
) -> None:
    job = counter("--mem", "300M", mib=64)
    task = f"0::{job_group(job.node, job.job)}/step_batch/user/task_0"
    assert groups(lab, job.node) == {task}
    job.reclaim("hibernate")
    job.reclaim("restore")
    job.counts_on()
    node, group = job.node, job_group(job.node, job.job)
    assert groups(lab, node) == {task}
    assert number(lab, node, f"{group}/memory.max") == 300 << 20
    assert number(lab, node, f"{group}/memory.stat", "anon") > 64 << 20
    assert number(lab, node, f"{group}/cpu.stat", "usage_usec") > 0
    listed = lab.out(node, "scontrol", "listpids", str(job.job))
    inside = lab.out(node, "pgrep", "-u", "alice", "python3").split()
    assert inside
    assert set(inside) <= {line.split()[0] for line in listed.splitlines()}
    used = lab.out("ctl", "sstat", "-nP", "-j", f"{job.job}.batch", "-o", "MaxRSS")
    assert int(used.rstrip("K")) > 64 << 10
    words = ["srun", "--overlap", f"--jobid={job.job}", "cat", "/proc/self/cgroup"]
    assert lab.out("ctl", *words, user="alice").startswith(f"0::{group}/step_")
    # The limit holds what came back, too.
    words[3:] = ["python3", "-c", "b'x' * (400 << 20)"]
    assert lab.exec("ctl", *words, user="alice", check=False).returncode != 0
