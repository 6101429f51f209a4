# SPDX-License-Identifier: Apache-2.0
"""A fresh start: the session's own namespaces, and otherwise a job as without us."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from conftest import UID, children, init_of, name_of, wait_until

from slurm_reclaim.daemon.node_sessions import _remove as remove

FRESH = {"mode": "fresh", "reason": "test", "block_io_uring": 0, "private_tmp": "", "last_pid": 299}


def test_ignored_job_is_left_alone(bench):
    agent = bench.agent(mode="ignore")
    task = bench.script("echo pid $$ $PPID; readlink /proc/self/ns/mnt; exit 3")
    assert task.status() == 3 << 8
    assert f"pid {task.pid} {task.process.pid}" in task.text()
    assert os.readlink("/proc/self/ns/mnt") in task.text()
    assert agent.events[0]["op"] == "start"
    assert not bench.note()


def test_start_message(bench):
    agent = bench.agent(mode="ignore")
    env = {"SLURM_JOB_NAME": "a=b\n%c", "SLURM_GPUS_PER_NODE": "2", "SLURM_JOB_QOS": "q", "X": "y"}
    bench.script("true", env=env, option="on").status()
    start = agent.events[0]
    assert (start["job"], start["uid"], start["gid"]) == ("77", str(UID), str(UID))
    assert start["protocol"] == "1"
    assert start["option"] == "on"
    assert start["env.SLURM_JOB_NAME"] == "a=b\n%c"
    assert start["env.SLURM_GPUS_PER_NODE"] == "2"
    assert "env.X" not in start


def test_other_steps_are_not_even_asked_about(bench):
    agent = bench.agent(**FRESH)
    assert bench.script("exit 4", step=0).status() == 4 << 8
    assert agent.events == []


def test_own_namespaces(bench):
    agent = bench.agent(**FRESH)
    task = bench.script(
        "echo pid=$$ task=$SLURM_TASK_PID ppid=$PPID; cat /proc/1/comm;"
        "ls /proc | grep -c '^[0-9]';"
        "ls /dev/pts; ls -A /dev/shm; stat -c '%a %F' /dev/shm; ps -o sid= -p $$;"
        "python3 -c 'import os; m,s=os.openpty(); print(os.ttyname(s))'; id -u",
    )
    assert task.status() == 0
    lines = task.text().split("\n")
    assert lines[0] == "pid=300 task=300 ppid=0"
    assert lines[1] == "reclaim-init"
    assert int(lines[2]) <= 6
    assert lines[3:5] == ["ptmx", "1777 directory"]
    assert lines[5].strip() == "300"
    assert lines[6] == "/dev/pts/0"
    assert lines[7] == str(UID)
    attach = agent.attached(77)
    assert attach["mode"] == "fresh"
    assert (attach["relay"], attach["restarts"]) == (str(task.pid), "0")


def test_the_relay_carries_what_slurm_says_of_the_allocation(bench):
    """And nothing else of the user's: the agent shows it to restored sessions."""
    agent = bench.agent(**FRESH)
    env = {
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_GPUS": "1",
        "SLURMD_NODENAME": "n2",
        "SLURM_JWT": "secret",
        "SLURM_RLIMIT_CORE": "0",
        "SLURM_SPANK_TOKEN": "secret",
        "SLURM_JWT_SOURCE": "none",
        "CUDA_VISIBLE_DEVICES": "0",
        "CUDA_VISIBLE_DEVICES_OLD": "7",
        "GPU_DEVICE_ORDINAL": "0",
        "HOSTNAME": "n2",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "LD_PRELOAD_": "x",
    }
    task = bench.script("sleep 60", env=env)
    agent.attached(77)
    wait_until(lambda: Path(f"/proc/{task.pid}/exe").readlink().name == "reclaim-relay")
    entries = Path(f"/proc/{task.pid}/environ").read_text().rstrip("\0").split("\0")
    seen = dict(entry.split("=", 1) for entry in entries)
    assert seen["PATH"] == "/usr/bin:/bin"
    gone = {"SLURM_JWT", "SLURM_RLIMIT_CORE", "SLURM_SPANK_TOKEN", "CUDA_VISIBLE_DEVICES_OLD",
            "AWS_SECRET_ACCESS_KEY", "LD_PRELOAD_"}  # fmt: skip
    assert {name: value for name, value in env.items() if name not in gone}.items() <= seen.items()
    assert not (gone | {"SLURM_TASK_PID"}) & seen.keys()
    # it is the job's user's process, and yet not the user's to read
    assert Path(f"/proc/{task.pid}/environ").stat().st_uid == 0


def test_the_tree_seen_from_outside(bench):
    agent = bench.agent(**FRESH)
    task = bench.script("sleep 60 & wait")
    attach = agent.attached(77)
    assert int(attach["child"]) in children(task.pid)
    names = ["bash", "reclaim-init", "reclaim-witness"]
    wait_until(lambda: sorted(name_of(p) for p in children(task.pid)) == names)
    assert name_of(task.pid) == "reclaim-relay"
    # Nothing of slurmstepd's lingers in it, neither memory nor descriptors.
    assert Path(f"/proc/{task.pid}/exe").readlink().name == "reclaim-relay"
    assert len(list(Path(f"/proc/{task.pid}/fd").iterdir())) <= 6
    assert len(Path(f"/proc/{task.pid}/environ").read_bytes()) < 200
    assert init_of(task) == next(p for p in children(task.pid) if name_of(p) == "reclaim-init")


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_code(bench, code):
    bench.agent(**FRESH)
    assert bench.script(f"exit {code}").status() == code << 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1, signal.SIGSEGV])
def test_death_by_signal(bench, number):
    bench.agent(**FRESH)
    assert bench.script(f"ulimit -c 0; kill -{int(number)} $$; sleep 9").status() == int(number)


def test_nothing_of_ours_reaches_the_job(bench):
    """Descriptors, signal masks and no_new_privs are those of an unmanaged run."""
    text = (
        "ls /proc/self/fd | wc -l;"
        "grep -E 'SigBlk|SigIgn|NoNewPrivs|Seccomp:|^Groups|^Cap' /proc/self/status;"
        "ulimit -a; umask; pwd; env | grep -v SLURM_TASK_PID | sort"
    )
    plain = bench.script(text, cwd="/usr")
    assert plain.status() == 0
    bench.agent(**FRESH)
    managed = bench.script(text, cwd="/usr")
    assert managed.status() == 0
    assert managed.text() == plain.text()


def test_io_uring_is_answered_enosys(bench):
    bench.agent(**{**FRESH, "block_io_uring": 1})
    program = (
        "import ctypes,os; libc=ctypes.CDLL(None,use_errno=True)\n"
        "for n in 424,425,426,427,428:\n"
        "  libc.syscall(n,-1,0,0,0,0,0); print(n,ctypes.get_errno())\n"
        "print(open('/proc/self/status').read())"
    )
    task = bench.start("/usr/bin/python3", "-c", program)
    assert task.status() == 0
    lines = task.text().split("\n")
    assert lines[1:4] == ["425 38", "426 38", "427 38"]
    assert not lines[0].endswith(" 38")
    assert "NoNewPrivs:\t0" in task.text()
    assert "Seccomp:\t2" in task.text()


def test_private_tmp(bench):
    private = bench.base / "tmp77"
    bench.agent(**{**FRESH, "private_tmp": private})
    text = "ls -A /tmp; stat -c %a /tmp; echo here > /tmp/file"
    task = bench.script(text)
    assert task.status() == 0
    assert task.text() == "1777\n"
    assert (private / "tmp/file").read_text() == "here\n"
    assert private.stat().st_mode & 0o7777 == 0o700
    # The next job of that number does not see it.
    again = bench.script(text)
    assert again.status() == 0
    assert again.text() == "1777\n"


def test_private_tmp_of_a_restore_is_empty(bench):
    """What an earlier life has left there is not what the checkpoint holds."""
    private = bench.base / "tmp77"
    (private / "tmp").mkdir(parents=True)
    (private / "tmp/stale").touch()
    agent = bench.agent(**{**FRESH, "mode": "restore", "private_tmp": private})
    task = bench.script("echo never")
    agent.attached(77)
    assert os.listdir(f"/proc/{init_of(task)}/root/tmp") == []
    assert os.listdir(private / "tmp") == []


def test_private_tmp_is_held_for_as_long_as_the_session_lives(bench):
    """An agent that comes up meanwhile, with an earlier life of the job in its records, lets it."""
    private = bench.base / "tmp77"
    agent = bench.agent(**{**FRESH, "private_tmp": private})
    task = bench.script("echo here > /tmp/file; sleep 60")
    agent.attached(77)
    wait_until(lambda: (private / "tmp/file").exists())
    remove(str(private))
    assert (private / "tmp/file").exists()
    os.kill(init_of(task), signal.SIGKILL)
    task.status()
    remove(str(private))
    assert not private.exists()
    assert [path for path in bench.base.iterdir() if "gone" in path.name] == []


def test_private_tmp_name_taken_by_somebody(bench):
    private = bench.base / "tmp77"
    private.mkdir()
    os.chown(private, UID, UID)
    bench.agent(**{**FRESH, "private_tmp": private})
    assert bench.script("echo here > /tmp/file").status() == 0
    assert (private / "tmp/file").read_text() == "here\n"
    assert private.stat().st_uid == 0


def test_double_forked_daemon_stays_below_the_script(bench):
    bench.agent(**FRESH)
    text = "(setsid sh -c 'sleep 60 & exit' &); sleep 0.5; ps -e -o pid=,ppid=,comm= | grep sleep"
    task = bench.script(text)
    assert task.status() == 0
    assert [line.split()[1] for line in task.text().splitlines() if "sleep" in line] == ["300"]


def test_end_takes_every_process_along(bench):
    agent = bench.agent(**FRESH)
    task = bench.script("setsid sleep 1234 & sleep 1; exit 0")
    agent.attached(77)
    init = init_of(task)
    assert task.status() == 0
    wait_until(lambda: not Path(f"/proc/{init}").exists())
    assert not any(
        b"sleep\x001234" in p.read_bytes()
        for p in Path("/proc").glob("[0-9]*/cmdline")
        if p.exists()
    )


def test_init_killed(bench):
    agent = bench.agent(**FRESH)
    task = bench.script("sleep 60")
    agent.attached(77)
    os.kill(init_of(task), signal.SIGKILL)
    assert task.status() == signal.SIGKILL


def test_relay_killed(bench):
    agent = bench.agent(**FRESH)
    task = bench.script("sleep 60")
    child = int(agent.attached(77)["child"])
    init = init_of(task)
    os.kill(task.pid, signal.SIGKILL)
    assert task.status() == signal.SIGKILL
    wait_until(lambda: not Path(f"/proc/{init}").exists() and not Path(f"/proc/{child}").exists())


def test_restart_count_is_slurms_not_the_users(bench):
    agent = bench.agent(**FRESH)
    stale = {"SLURM_RESTART_COUNT": "9"}
    task = bench.script("echo $SLURM_RESTART_COUNT", env=stale)
    assert task.status() == 0
    assert agent.attached(77)["restarts"] == "0"
    assert task.text() == "9\n"
    seen = len(agent.events)
    task = bench.script("echo $SLURM_RESTART_COUNT", env=stale, restarts=2)
    assert task.status() == 0
    assert agent.attached(77, after=seen)["restarts"] == "2"
    assert task.text() == "2\n"


def test_init_joins_the_cgroups_of_the_relay(bench):
    agent = bench.agent(**FRESH)
    home = next(
        (Path(m.split()[1]) for m in Path("/proc/mounts").read_text().splitlines()
         if m.split()[2] == "cgroup" and "pids" in m.split()[3].split(",")), None)  # fmt: skip
    if home is None:
        home = Path("/sys/fs/cgroup")
    group = home / f"reclaim-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as problem:
        pytest.skip(f"no writable cgroup: {problem}")
    try:
        task = bench.script("sleep 60", cgroup=group / "cgroup.procs")
        agent.attached(77)
        init = init_of(task)
        wait_until(lambda: str(init) in (group / "cgroup.procs").read_text().split())
        os.kill(task.pid, signal.SIGKILL)
        task.status()
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def own_mounts(pid: int) -> set[str]:
    return {line.split()[0] for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()}


def mount_of(pid: int, fd: int) -> str:
    text = Path(f"/proc/{pid}/fdinfo/{fd}").read_text()
    return next(line.split()[1] for line in text.splitlines() if line.startswith("mnt_id:"))


def test_what_slurm_opened_lies_on_the_mounts_of_the_session(bench):
    """CRIU knows no others, but on a root that is an overlay, where it guesses. The relay's, too:
    they are what a restored session is given."""
    bench.agent(**FRESH)
    path = bench.base / "opened"
    path.touch(0o666)
    path.chmod(0o666)
    with path.open("r+b") as opened:
        task = bench.script("echo one >&0; echo two >&2; exec sleep 60", opened=opened)
    wait_until(lambda: "two" in path.read_text())
    assert "one\ntwo\n" in path.read_text(), "they share one open file, and so one position"
    init = init_of(task)
    job = wait_until(lambda: next((p for p in children(task.pid) if name_of(p) == "sleep"), 0))
    assert {mount_of(pid, fd) for pid in (job, task.pid) for fd in (0, 2)} <= own_mounts(init)


def test_a_file_that_is_gone_stays_open(bench):
    bench.agent(**FRESH)
    path = bench.base / "opened"
    path.touch(0o666)
    path.chmod(0o666)
    with path.open("r+b") as opened:
        path.rename(bench.base / "kept")
        path.mkdir()
        task = bench.script("echo one >&0; cat <&0", opened=opened)
    assert task.status() == 0
    assert "one\n" in (bench.base / "kept").read_text()
