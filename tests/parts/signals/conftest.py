"""A small session of real processes: its own PID and mount namespaces, /dev/pts and cgroups."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

NUMBERS = itertools.count(os.getpid() * 100)
PARENT = "slurm-reclaim-unit"
# Does what it is told on its standard input (Python as a JSON string a line), and says when.
SHELL = """
import json, os, pty, signal, socket, subprocess, sys, threading, time
print("ready", flush=True)
for line in sys.stdin:
    exec(json.loads(line))
    print("done", flush=True)
"""


def _directories(number: int, cgroups: bool) -> list[Path]:
    if not cgroups:
        return []
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        tops = ["."]
    else:
        tops = [t for t in ("freezer", "cpuacct", "memory") if Path("/sys/fs/cgroup", t).is_dir()]
    if not tops:
        pytest.skip("no cgroups are mounted")
    return [Path("/sys/fs/cgroup", top, PARENT, f"job_{number}") for top in tops]


class Session:
    """`init` stands for reclaim-init, `relay` for the relay, `root` for the batch script."""

    def __init__(self, cgroups: bool, uid: int) -> None:
        self.uid = uid
        self.jobs = _directories(next(NUMBERS), cgroups)
        self.first = self.start("step_batch", session=True)
        self.relay = self.first.pid
        self.init = int(_children(self.relay)[0])
        self.root = int(_children(self.init)[0])

    def start(self, step: str, session: bool = False) -> subprocess.Popen[str]:
        """Another step of the job, or the session itself."""
        steps = [job / step for job in self.jobs]
        for path in steps:
            path.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-c", SHELL]
        if self.uid:
            words = ["setpriv", f"--reuid={self.uid}", "--clear-groups", *words]
        if session:
            words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c",
                     "mount -t devpts -o newinstance,ptmxmode=666 devpts /dev/pts && "
                     'mount --bind /dev/pts/ptmx /dev/ptmx && "$@" <&3 & wait',
                     "sh", *words]  # fmt: skip

        def enter() -> None:
            for path in steps:
                (path / "cgroup.procs").write_text("0")
            if session:
                os.dup2(0, 3)

        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=enter,
            start_new_session=True, pass_fds=(3,) if session else (),
        )  # fmt: skip
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            process.kill()
            pytest.skip("namespaces can't be made here")
        return process

    def run(self, code: str, process: subprocess.Popen[str] | None = None) -> None:
        """Have it carry out some Python; returns when that is done."""
        process = process or self.first
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(code) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"

    def end(self, *others: subprocess.Popen[str]) -> None:
        for process in (self.first, *others):
            with suppress(ProcessLookupError):  # ended by the test already
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        _gone(self.init)
        for job in self.jobs:
            _remove(job)


def _gone(init: int) -> None:
    """Its starter's end is not the end of the namespace: that ends when its init was reaped, and
    with it every process there. Until then the census sees them, and rightly."""
    deadline = time.monotonic() + 20
    while Path(f"/proc/{init}").exists():
        assert time.monotonic() < deadline, f"{init} does not end"
        time.sleep(0.01)


def _children(pid: int) -> list[str]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{pid} has no child")


def _remove(job: Path) -> None:
    for _ in range(100):
        if not job.exists():
            return
        try:
            for step in job.iterdir():
                if step.is_dir():
                    step.rmdir()
            job.rmdir()
            return
        except OSError:
            time.sleep(0.05)


@pytest.fixture
def session() -> Iterator[Callable[..., Session]]:
    """Starts sessions: session(cgroups=True, uid=0)."""
    if os.geteuid() != 0:
        pytest.skip("namespaces, cgroups and other users' processes need root")
    started: list[Session] = []

    def start(*, cgroups: bool = True, uid: int = 0) -> Session:
        started.append(Session(cgroups, uid))
        return started[-1]

    yield start
    for one in started:
        one.end()
