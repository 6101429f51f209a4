"""The test cluster itself: what all other tests stand on."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.cluster.conftest import PROGRAM, Lab

pytestmark = pytest.mark.cluster

COMPUTE = ("n1", "n2")


def traces(name: str) -> list[str]:
    """What a lab of this name has on the machine: namespaces, mounts, cgroups, processes."""
    found = list(Path("/run/netns").glob(f"lab-{name}-*"))
    found += Path("/sys/fs/cgroup").glob(f"slurm-reclaim-lab/{name}")
    found += Path("/sys/fs/cgroup").glob(f"*/slurm-reclaim-lab/{name}")
    seen = [str(path) for path in found]
    seen += [
        line
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if f"/{name}/nodes/" in line or f"lab-{name}-" in line
    ]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inside = (process / "cgroup").read_text()
            cmdline = (process / "cmdline").read_bytes()
        except OSError:
            continue
        # Without a command line: dead, and only the machine's own init can clear it away.
        if f"/slurm-reclaim-lab/{name}/" in inside and cmdline:
            seen.append(f"{process}: {cmdline!r}")
    return seen


def test_a_job_runs_as_its_user_and_is_accounted(lab: Lab) -> None:
    out = "/shared/home/alice/first.out"
    job = lab.sbatch("#!/bin/sh\nid -un; hostname; pwd\n", "-D", "/shared/home/alice", "-o", out)
    lab.wait("the job in accounting", lambda: lab.job_state(job) == "COMPLETED")
    user, host, cwd = lab.out("n2", "cat", out).split()  # by the shared directory: any node
    assert (user, cwd) == ("alice", "/shared/home/alice")
    assert host in COMPUTE
    assert lab.out("ctl", "sacct", "-nXPD", "-j", str(job), "-o", "User,Account") == "alice|users"


def test_more_memory_than_asked_for_is_fatal(lab: Lab) -> None:
    eat = "#!/bin/sh\nexec python3 -c 'x = bytearray(300 << 20); print(len(x))'\n"
    job = lab.sbatch(eat, "--mem=64", "-D", "/tmp", "-o", "/dev/null")
    lab.wait("the job's end", lambda: lab.job_state(job) == "OUT_OF_MEMORY")


def test_as_many_jobs_as_the_nodes_claim_to_have_cores(lab: Lab) -> None:
    jobs = [lab.sbatch("#!/bin/sh\nsleep 60\n", "-D", "/tmp", "-o", "/dev/null") for _ in range(8)]
    try:
        running = ["squeue", "-h", "-t", "R", "-o", "%i", "-u", "alice"]
        lab.wait("eight running jobs", lambda: len(lab.out("ctl", *running).split()) == 8)
        group = lab.out("n1", "cat", "/proc/self/cgroup")
        assert f"/{lab.name}/" not in group, "a node must see its own cgroup as the root"
    finally:
        lab.exec("ctl", "scancel", *map(str, jobs))
        # A node that loses its power while it still completes jobs is not given new ones at once.
        there = ("squeue", "-h", "-o", "%i %T", "-j", ",".join(map(str, jobs)))
        lab.wait("their end", lambda: not lab.out("ctl", *there))


def test_levels_of_the_accounts(lab: Lab) -> None:
    said = lab.out("ctl", "sacctmgr", "-nP", "list", "user", "format=User,AdminLevel")
    levels = dict(line.split("|") for line in said.splitlines())
    assert levels["alice"] == levels["bob"] == "None"
    assert levels["olga"] == "Operator"
    assert levels["slurm-reclaim"] == "Administrator"


def test_exec_passes_status_input_and_account(lab: Lab) -> None:
    assert lab.exec("n1", "sh", "-c", "exit 7", check=False).returncode == 7
    assert lab.exec("n1", "no-such-command", check=False).returncode == 127
    assert lab.exec("n1", "wc", "-c", stdin="12345").stdout.strip() == "5"
    assert lab.exec("n1", "sh", "-c", "kill -9 $$", check=False).returncode in (-9, 137)
    said = lab.out("n2", "sh", "-c", "id -un; pwd; echo $HOME $USER; hostname", user="bob")
    assert said.split() == ["bob", "/shared/home/bob", "/shared/home/bob", "bob", "n2"]
    assert lab.out("n1", "printf", "%s|", "a b", "$c", "").strip() == "a b|$c||"


def test_exec_ends_with_the_command_that_entered(lab: Lab) -> None:
    words = [str(PROGRAM), "--name", lab.name, "exec", "n1", "--user", "alice", "sleep", "4711"]
    with subprocess.Popen(words) as entered:

        def left() -> str:
            return lab.exec("n1", "pgrep", "-f", "sleep 4711", check=False).stdout

        lab.wait("the sleeper", left)
        entered.kill()
        lab.wait("its end", lambda: not left())


def test_errors_are_one_sentence(lab: Lab) -> None:
    for words in (
        ("exec", "n9", "true"),
        ("exec", "n1", "--user", "nobody-here", "true"),
        ("kill", "n9"),
        ("restart-daemon", "n1", "slurmctld"),
        ("logs", "n1", "nosuch"),
    ):
        done = lab.call(*words, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("lab: ")
        assert len(done.stderr.splitlines()) == 1


def test_a_node_comes_back_after_a_power_failure(lab: Lab) -> None:
    lab.exec("n1", "sh", "-c", "echo kept >/etc/kept; echo gone >/tmp/gone; echo gone >/run/gone")
    before = lab.out("n1", "cat", "/proc/sys/kernel/hostname")
    lab.kill("n1")
    assert lab.exec("n1", "true", check=False).returncode == 1
    assert lab.out("n2", "hostname") == "n2"
    lab.boot("n1")
    assert lab.out("n1", "hostname") == before
    assert lab.out("n1", "cat", "/etc/kept") == "kept"
    assert lab.exec("n1", "ls", "/tmp/gone", "/run/gone", check=False).returncode == 2
    job = lab.sbatch("#!/bin/sh\ntrue\n", "-w", "n1", "-D", "/tmp", "-o", "/dev/null")
    lab.wait("a job on the node", lambda: lab.job_state(job) == "COMPLETED")


def test_the_controller_comes_back_with_its_state(lab: Lab) -> None:
    job = lab.sbatch("#!/bin/sh\nsleep 60\n", "-D", "/tmp", "-o", "/dev/null")
    lab.wait("the job", lambda: "RUNNING" in lab.out("ctl", "squeue", "-h", "-o", "%T"))
    # slurmctld writes its state some seconds later: what came after the last time would be lost.
    now = lab.out("ctl", "date", "+%s")
    saved = ("stat", "-c", "%Y", "/var/spool/slurmctld/job_state")
    lab.wait("the saved state", lambda: lab.out("ctl", *saved) > now)
    lab.kill("ctl")
    lab.boot("ctl")
    assert lab.out("ctl", "squeue", "-h", "-j", str(job), "-o", "%T") == "RUNNING"
    lab.exec("ctl", "scancel", str(job))
    lab.wait("its end in accounting", lambda: lab.job_state(job) == "CANCELLED")


def test_daemons_stop_and_start(lab: Lab) -> None:
    lab.stop_daemon("n1", "slurmd")
    assert "slurmd DOWN" in lab.call("status", check=False).stdout
    lab.start_daemon("n1", "slurmd")
    lab.restart_daemon("n1", "munged", kill=True)
    assert "DOWN" not in next(
        line for line in lab.call("status", check=False).stdout.splitlines() if line[:2] == "n1"
    )


def test_two_labs_side_by_side_and_nothing_left(lab: Lab, another_lab) -> None:
    other = another_lab("beside")
    other.up(nodes=1, gpus=2)
    assert other.out("n1", "getent", "hosts", "ctl") == lab.out("n1", "getent", "hosts", "ctl")
    job = other.sbatch(
        "#!/bin/sh\necho $CUDA_VISIBLE_DEVICES; sleep 1\n",
        "-p", "gpu", "--gres=gpu:1", "-D", "/shared/home/alice", "-o", "gpu.out",
    )  # fmt: skip
    other.wait("a GPU job", lambda: other.job_state(job) == "COMPLETED")
    assert other.out("n1", "cat", "/shared/home/alice/gpu.out") == "0"
    assert lab.exec("n1", "ls", "/shared/home/alice/gpu.out", check=False).returncode != 0
    assert traces("beside")
    other.down(purge=True)
    assert traces("beside") == []
    assert lab.is_up()


IN_A_CHROOT = """
import os, sys
from reclaim_lab import kernel, node_boot
kernel.unshare(kernel.CLONE_NEWNS)
kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
kernel.mount("/", sys.argv[1], flags=kernel.MS_BIND | kernel.MS_REC)
os.chroot(sys.argv[1])
kernel.mount("tmpfs", "/tmp", "tmpfs")
for name in ("old", "proc"):
    os.mkdir("/tmp/" + name)
kernel.mount("proc", "/tmp/proc", "proc")
os.chdir("/tmp")
kernel.pivot_root(".", "old")
os.chdir("/")
node_boot._check_root()
"""


def test_a_chroot_is_refused(tmp_path: Path) -> None:
    """What is sent to a node would land on the machine itself."""
    done = subprocess.run(
        ["/usr/bin/python3", "-c", IN_A_CHROOT, str(tmp_path)],
        env={"PYTHONPATH": str(PROGRAM.parent), "PATH": "/usr/sbin:/usr/bin"},
        capture_output=True,
        text=True,
    )
    assert "this is a chroot" in done.stderr


def test_the_demo_in_a_chroot_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    """With a sentence, not a traceback, and at once."""
    there, cache = tmp_path / "root", tmp_path / "cache"
    there.mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "/bin/sh", "-euc",
         'mount --rbind / "$1"; exec chroot "$1" "$2"', "sh", there, PROGRAM.with_name("demo")],
        env=os.environ | {"RECLAIM_LAB_CACHE": str(cache), "RECLAIM_DEMO_LAB": "chrooted"},
        capture_output=True,
        text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "lab: this is a chroot" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (cache / "layers").exists()


@pytest.mark.alone
def test_up_again_is_quick(lab: Lab) -> None:
    began = time.monotonic()
    lab.up()
    assert time.monotonic() - began < 15
