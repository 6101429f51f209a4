# SPDX-License-Identifier: Apache-2.0
"""reclaim-exec: what a command started through it is, has and sees."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import UID, children, init_of, wait_until

USER = ("--uid", str(UID), "--gid", str(UID + 1))
STATUS = "/proc/self/status"
CAP_SYS_RESOURCE = 24


@pytest.fixture
def run(build):
    def run(*arguments: str, **more) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [build / "reclaim-exec", *arguments], capture_output=True, text=True, timeout=20, **more
        )

    return run


@pytest.fixture
def session(bench):
    agent = bench.agent(mode="fresh", last_pid=299)
    task = bench.script("sleep 60")
    agent.attached(77)
    return init_of(task), task


def field(text: str, name: str) -> str:
    return re.search(rf"^{name}:[ \t]*(.*?) *$", text, re.M).group(1)


def test_plain(run):
    assert run("--", "/bin/echo", "a", "--", "-b").stdout == "a -- -b\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "absolute path"),
        (["--", "ls"], "absolute path"),
        (["--dance", "--", "/bin/true"], "wrong option"),
        (["--cgroups-of", "x", "--", "/bin/true"], "couldn't use --cgroups-of x"),
        (["--cgroups-of", "0", "--", "/bin/true"], "couldn't use --cgroups-of 0"),
        (["--uid", "1", "--", "/bin/true"], "--uid and --gid go together"),
        (["--uid", "4294967295", "--gid", "1", "--", "/bin/true"], "couldn't use --uid"),
        (["--caps", "chown", "--", "/bin/true"], "need --uid"),
        ([*USER, "--caps", "fly", "--", "/bin/true"], "couldn't use --caps fly"),
        ([*USER, "--caps", "chown,", "--", "/bin/true"], "couldn't use --caps"),
        ([*USER, "--groups", "a", "--", "/bin/true"], "couldn't use --groups a"),
        (["--join", "1", "--", "/bin/true"], "couldn't use --join"),
        (["--join", "1:net", "--", "/bin/true"], "couldn't use --join"),
        (["--time-offsets", "1", "--", "/bin/true"], "couldn't use --time-offsets"),
        (["--join", "1:time", "--time-offsets", "1:1", "--", "/bin/true"], "none is joined"),
        (["--keep-fds", "-1", "--", "/bin/true"], "couldn't use --keep-fds"),
    ],
)
def test_wrong_usage(run, arguments, words):
    done = run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "usage: reclaim-exec" in done.stderr


def ignored(status: str) -> int:
    return int(field(status, "SigIgn"), 16)


def test_a_tracer_ignores_broken_pipes_and_is_spared_by_the_oom_killer(run):
    lines = ("--", "/bin/cat", STATUS, "/proc/self/oom_score_adj")
    plain, tracer = run(*USER, *lines).stdout, run(*USER, "--tracer", *lines).stdout
    # Who runs the tests may ignore a signal, too.
    broken_pipe = 1 << (signal.SIGPIPE - 1)
    assert not ignored(plain) & broken_pipe
    assert ignored(tracer) == ignored(plain) | broken_pipe
    # As far as root may here: for a lower score it needs CAP_SYS_RESOURCE.
    before = int(Path("/proc/self/oom_score_adj").read_text())
    assert plain.splitlines()[-1] == str(before)
    may = int(field(Path(STATUS).read_text(), "CapEff"), 16) & 1 << CAP_SYS_RESOURCE
    assert tracer.splitlines()[-1] == ("-1000" if may else str(before))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--join", "4194303:pid"], "couldn't open /proc/4194303/ns/pid"),
        (["--cgroups-of", "4194303"], "couldn't read the cgroups of 4194303"),
        (["--affinity-of", "4194303"], "couldn't read the CPUs of 4194303"),
        (["--rlimits-of", "4194303"], "couldn't open /proc/4194303/limits"),
    ],
)
def test_process_is_gone(run, arguments, words):
    done = run(*arguments, "--", "/bin/true")
    assert done.returncode == 126
    assert words in done.stderr


def test_command_is_missing_or_no_program(run, tmp_path):
    done = run("--", "/nonexistent/x")
    assert done.returncode == 127
    assert "couldn't run /nonexistent/x: No such file" in done.stderr
    assert run("--", "/etc/passwd").returncode == 126


def test_environment_is_scrubbed(run):
    out = run("--", "/usr/bin/env", env={"LD_PRELOAD": "", "SECRET": "x", "PATH": "/evil"}).stdout
    assert sorted(out.split()) == [
        "HOME=/nonexistent", "LANG=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
    ]  # fmt: skip


def test_becomes_the_user_with_no_rights(run):
    text = run(*USER, "--", "/bin/cat", STATUS).stdout
    assert field(text, "Uid").split() == [str(UID)] * 4
    assert field(text, "Gid").split() == [str(UID + 1)] * 4
    assert field(text, "Groups") == ""
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(field(text, name), 16) == 0
    assert int(field(text, "CapBnd"), 16) != 0
    assert field(text, "NoNewPrivs") == "0"


def test_exactly_the_capabilities_named(run):
    text = run(*USER, "--groups", "7,8,9", "--caps", "checkpoint_restore,CAP_SYS_PTRACE,NET_ADMIN",
               "--", "/bin/cat", STATUS).stdout  # fmt: skip
    want = 1 << 40 | 1 << 19 | 1 << 12
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(field(text, name), 16) == want
    before = int(field(Path(STATUS).read_text(), "CapBnd"), 16)
    assert int(field(text, "CapBnd"), 16) == before
    assert field(text, "Groups").split() == ["7", "8", "9"]


def test_a_capability_that_root_lacks_is_named_as_the_reason(run):
    have = int(field(Path(STATUS).read_text(), "CapPrm"), 16)
    if have >> 24 & 1:
        pytest.skip("root has CAP_SYS_RESOURCE here")
    done = run(*USER, "--caps", "sys_resource", "--", "/bin/true")
    assert done.returncode == 126
    assert "couldn't keep the capabilities" in done.stderr


def test_descriptors(run):
    read, write = os.pipe()
    high = os.dup2(write, 50)
    listing = ("--", "/bin/ls", "/proc/self/fd")
    # The last one is that of ls itself.
    assert run(*listing, pass_fds=(read, high)).stdout.split() == ["0", "1", "2", "3"]
    out = run("--keep-fds", "0,1,2,50", *listing, pass_fds=(read, high)).stdout.split()
    assert out == ["0", "1", "2", "3", "50"]
    for fd in (read, write, high):
        os.close(fd)


def test_signals_are_reset(build):
    def ignore() -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    out = subprocess.run([build / "reclaim-exec", "--", "/bin/cat", STATUS], text=True,
                         stdout=subprocess.PIPE, preexec_fn=ignore).stdout  # fmt: skip
    # 32 and 33 are the C library's own and can't be set through it.
    assert int(field(out, "SigIgn"), 16) & ~(3 << 31) == 0
    assert int(field(out, "SigBlk"), 16) == 0


def test_io_uring_blocked(run):
    program = (
        "import ctypes; libc=ctypes.CDLL(None,use_errno=True)\n"
        "for n in 424,425,426,427,428:\n"
        "  libc.syscall(n,-1,0,0,0,0,0); print(ctypes.get_errno())"
    )
    done = run("--block-io-uring", *USER, "--", "/usr/bin/python3", "-c", program)
    codes = done.stdout.split()
    assert codes[1:4] == ["38"] * 3
    assert "38" not in (codes[0], codes[4])


def test_affinity(run):
    cpus = os.sched_getaffinity(0)
    one = min(cpus)
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        os.sched_setaffinity(sleeper.pid, {one})
        text = run("--affinity-of", str(sleeper.pid), "--", "/bin/cat", STATUS).stdout
        assert field(text, "Cpus_allowed_list") == str(one)
    finally:
        sleeper.kill()
        sleeper.wait()


def test_limits(run):
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    sleeper = subprocess.Popen(["sleep", "60"], preexec_fn=lower)
    try:
        want = Path(f"/proc/{sleeper.pid}/limits").read_text()
        got = run("--rlimits-of", str(sleeper.pid), *USER, "--", "/bin/cat", "/proc/self/limits")
        assert got.stdout == want

        # The other way round the hard limit may be out of reach: no reason to fail.
        def lowest() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (50, 60))

        up = run("--rlimits-of", str(os.getpid()), "--", "/bin/cat", "/proc/self/limits",
                 preexec_fn=lowest)  # fmt: skip
        assert up.returncode == 0, up.stderr
    finally:
        sleeper.kill()
        sleeper.wait()
    assert run("--rlimits-of", "none", "--", "/bin/true").returncode == 0


def test_joins_a_session(run, session):
    init, _ = session
    done = run("--join", f"{init}:mnt,pid", *USER, "--", "/bin/sh", "-c",
               "echo $$ $PPID; cat /proc/1/comm; ls /dev/pts; pwd")  # fmt: skip
    pid, parent, comm, pts, directory = done.stdout.split()
    assert int(pid) > 299
    assert (parent, comm, pts, directory) == ("0", "reclaim-init", "ptmx", "/")


def test_mount_namespace_alone(run, session):
    """No fork is needed then."""
    init, _ = session
    done = run("--join", f"{init}:mnt", "--", "/bin/readlink", "/proc/1/ns/mnt")
    assert done.stdout.strip() == os.readlink(f"/proc/{init}/ns/mnt")


@pytest.mark.parametrize("code", [0, 3, 255])
def test_exit_status_through_the_fork(run, session, code):
    init, _ = session
    assert run("--join", f"{init}:pid", "--", "/bin/sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_death_by_signal_through_the_fork(run, session, number):
    init, _ = session
    text = f"import os; os.kill(os.getpid(), {int(number)})"
    done = run("--join", f"{init}:pid", "--", "/usr/bin/python3", "-c", text)
    assert done.returncode == -number


def test_signals_through_the_fork(build, session):
    init, _ = session
    process = subprocess.Popen(
        [build / "reclaim-exec", "--join", f"{init}:pid", "--", "/bin/bash", "-c",
         "trap 'echo usr1' USR1; trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "usr1\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 4


def test_killed_with_its_command(build, session):
    """What the agent does when a dump takes too long; also with capabilities kept over exec."""
    init, _ = session
    process = subprocess.Popen(
        [build / "reclaim-exec", "--join", f"{init}:pid", *USER, "--caps", "sys_ptrace",
         "--", "/bin/sleep", "60"],
    )  # fmt: skip
    command = wait_until(lambda: children(process.pid))[0]
    wait_until(lambda: b"/bin/sleep" in Path(f"/proc/{command}/cmdline").read_bytes()[:10])
    process.kill()
    process.wait()
    wait_until(lambda: not Path(f"/proc/{command}").exists())


def test_end_of_output_is_the_commands(build, session):
    """The one that waits for it holds no pipe of its."""
    init, _ = session
    process = subprocess.Popen(
        [build / "reclaim-exec", "--join", f"{init}:pid", "--", "/bin/bash", "-c",
         "exec >&-; sleep 2"], stdout=subprocess.PIPE,
    )  # fmt: skip
    started = time.monotonic()
    assert process.stdout.read() == b""
    assert time.monotonic() - started < 1.5
    assert process.wait(10) == 0


@pytest.mark.parametrize("offset", [0, 5_000_000_000, -1_500_000_000, 86400_250_000_000])
def test_time_offsets(run, session, offset):
    init, _ = session
    program = "import time; print(time.clock_gettime_ns(1), time.clock_gettime_ns(7))"
    done = run("--join", f"{init}:mnt,pid", "--time-offsets", f"{offset}:{offset // 2}", *USER,
               "--", "/usr/bin/python3", "-c", program)  # fmt: skip
    monotonic, boottime = (int(word) for word in done.stdout.split())
    assert abs(time.clock_gettime_ns(time.CLOCK_MONOTONIC) + offset - monotonic) < 2e9
    assert abs(time.clock_gettime_ns(time.CLOCK_BOOTTIME) + offset // 2 - boottime) < 2e9


def test_joins_a_time_namespace(build, run):
    outer = subprocess.Popen(
        [build / "reclaim-exec", "--time-offsets", "1000000000000:0", "--", "/bin/sleep", "60"]
    )
    try:
        wait_until(lambda: children(outer.pid))
        time.sleep(0.3)
        inner = children(outer.pid)[0]
        program = "import time; print(time.monotonic_ns())"
        done = run("--join", f"{inner}:time", "--", "/usr/bin/python3", "-c", program)
        assert abs(int(done.stdout) - 10**12 - time.monotonic_ns()) < 2e9
    finally:
        outer.terminate()
        outer.wait()


def test_cgroups(build, run):
    """Every hierarchy there is, version 1, 2 or both."""
    made = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        if right.split()[0] not in ("cgroup", "cgroup2") or "name=" in right:
            continue
        folder = Path(left.split()[4]) / f"reclaim-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        made.append(folder)
        if (folder / "cpuset.cpus").exists() and "cpuset" in right:
            for name in ("cpuset.cpus", "cpuset.mems"):
                (folder / name).write_text((folder.parent / name).read_text())
    if not made:
        pytest.skip("no cgroups can be made here")
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        for folder in made:
            (folder / "cgroup.procs").write_text(str(sleeper.pid))
        want = Path(f"/proc/{sleeper.pid}/cgroup").read_text()
        assert str(made[0].name) in want
        done = run("--cgroups-of", str(sleeper.pid), *USER, "--", "/bin/cat", "/proc/self/cgroup")
        assert done.stdout == want, done.stderr
    finally:
        sleeper.kill()
        sleeper.wait()
        for folder in made:
            wait_until(lambda folder=folder: not (folder / "cgroup.procs").read_text())
            folder.rmdir()


def test_everything_at_once_as_for_a_restore(run, session):
    init, task = session
    done = run(
        "--cgroups-of", str(task.pid), "--affinity-of", str(task.pid), "--rlimits-of",
        str(task.pid), "--join", f"{init}:mnt,pid", "--time-offsets", "7000000000:8000000000",
        "--block-io-uring", *USER, "--groups", "", "--caps", "checkpoint_restore,setpcap",
        "--keep-fds", "0,1,2", "--", "/bin/cat", "/proc/self/status", "/proc/self/timens_offsets",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert field(done.stdout, "Seccomp") == "2"
    assert int(field(done.stdout, "CapAmb"), 16) == 1 << 40 | 1 << 8
    assert re.search(r"monotonic\s+7\s+0", done.stdout)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="by the numbers of its system calls")
def test_no_keyring_of_roots_comes_along(build):
    """A service has a session keyring of its own, and whoever inherits it may read its keys."""
    script = r"""
import ctypes, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
ring = libc.syscall(250, 1, b"of-the-agent")  # KEYCTL_JOIN_SESSION_KEYRING
key = libc.syscall(248, b"user", b"secret", b"x", 1, -3)  # into the session keyring
assert ring > 0 and key > 0, ctypes.get_errno()
subprocess.run(sys.argv[1:], check=True)
"""
    words = ["--uid", str(UID), "--gid", str(UID), "--", "/bin/cat", "/proc/keys"]
    done = subprocess.run(
        [sys.executable, "-c", script, build / "reclaim-exec", *words],
        capture_output=True, text=True, check=True, timeout=20,
    )  # fmt: skip
    assert "_ses" in done.stdout
    for name in ("secret", "of-the-agent"):
        assert name not in done.stdout
