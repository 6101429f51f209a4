# SPDX-License-Identifier: Apache-2.0
"""Runs the plugin in a stand-in for slurmstepd (spank/tests/stepd.c) against a fake agent.

Needs root, a C compiler and Slurm's headers; skipped where one of them is missing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "cluster"))
from fake_agent import FakeAgent  # noqa: E402

UID = 65533
# LeakSanitizer needs ptrace and threads in places where we have neither.
SANITIZER = {
    "ASAN_OPTIONS": "detect_leaks=0:log_path=/tmp/spank-asan",
    "UBSAN_OPTIONS": "halt_on_error=1",
}


@pytest.fixture(scope="session", autouse=True)
def signals_as_usual():
    """Under nohup SIGHUP is ignored, behind a shell's `&` SIGINT and SIGQUIT; and what is ignored
    at its start no shell can trap."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session")
def build() -> Path:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if not shutil.which("make") or not shutil.which(os.environ.get("CC", "cc")):
        pytest.skip("needs make and a C compiler")
    if "RECLAIM_SPANK_BUILD" in os.environ:
        return Path(os.environ["RECLAIM_SPANK_BUILD"])
    if not Path("/usr/include/slurm/spank.h").exists():
        pytest.skip("needs slurm/spank.h (libslurm-dev)")
    subprocess.run(
        ["make", "-s", "-C", ROOT / "spank", "sanitized"], check=True, stdout=subprocess.DEVNULL
    )
    return ROOT / "spank" / "build" / "sanitized"


def wait_until(condition, timeout: float = 10, every: float = 0.02):
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {condition}")
        time.sleep(every)


class Task:
    """One run of stepd; `pid` is the task process, the later relay."""

    def __init__(self, process: subprocess.Popen[str], output: Path) -> None:
        self.process = process
        self.output = output
        line = process.stdout.readline()
        assert line.startswith("task "), line + process.stderr.read()
        self.pid = int(line.split()[1])

    def status(self, timeout: float = 15) -> int:
        out, self.errors = self.process.communicate(timeout=timeout)
        return int(re.search(r"status (\d+)", out).group(1))

    def text(self) -> str:
        return self.output.read_text()

    def has(self, text: str) -> str:
        wait_until(lambda: text in self.text())
        return self.text()


class Bench:
    """A private installation below a temporary directory."""

    def __init__(self, build: Path, base: Path) -> None:
        self.build = build
        self.base = base
        self.libexec = base / "libexec"
        self.libexec.mkdir()
        for name in ("reclaim-init", "reclaim-relay", "reclaim-exec"):
            shutil.copy2(build / name, self.libexec / name)
        (self.libexec / "reclaim-relay").chmod(0o711)  # as make install does
        self.socket = base / "agent.sock"
        self.state = base / "state"
        self.state.mkdir()
        self.run = base / "run"
        self.agents: list[FakeAgent] = []
        self.tasks: list[Task] = []
        self.count = 0

    def agent(self, **answer: object) -> FakeAgent:
        agent = FakeAgent(self.socket, {k: str(v) for k, v in answer.items()})
        self.agents.append(agent)
        return agent

    def start(
        self,
        *program: str,
        env: dict[str, str] | None = None,
        opened: IO[bytes] | None = None,
        **facts: object,
    ) -> Task:
        """`opened`: given to the job as its stdin and stderr, as slurmstepd has them open."""
        facts = {"job": 77, "uid": UID, "gid": UID, **facts}
        self.count += 1
        output = self.base / f"output{self.count}"
        process = subprocess.Popen(
            [self.build / "stepd", *(f"{k}={v}" for k, v in facts.items()), "--",
             f"socket={self.socket}", f"libexec={self.libexec}", f"state={self.state}",
             f"run={self.run}", "timeout=1", "--", "/bin/sh", "-c",
             f'exec >>{output}; exec "$0" "$@"', *program],
            stdin=opened, stdout=subprocess.PIPE, stderr=opened or subprocess.PIPE, text=True,
            env={"PATH": os.environ["PATH"], **SANITIZER, **(env or {})},
        )  # fmt: skip
        output.touch()
        output.chmod(0o666)
        task = Task(process, output)
        self.tasks.append(task)
        return task

    def script(self, text: str, **facts: object) -> Task:
        return self.start("/bin/bash", "-c", text, **facts)

    def note(self, job: int = 77) -> str:
        path = self.run / "missed" / str(job)
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        for task in self.tasks:
            if task.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(task.pid, signal.SIGKILL)
                task.process.communicate(timeout=10)
        for agent in self.agents:
            agent.close()


@pytest.fixture
def bench(build):
    # pytest's own directories are 0700 and below a sticky /tmp; the job's user must get in.
    base = Path("/var/lib") / f"reclaim-test-{os.getpid()}-{time.monotonic_ns()}"
    base.mkdir(mode=0o755)
    bench = Bench(build, base)
    yield bench
    bench.close()
    shutil.rmtree(base, ignore_errors=True)


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except FileNotFoundError:
        return ""


def init_of(task: Task) -> int:
    return wait_until(
        lambda: next((p for p in children(task.pid) if name_of(p) == "reclaim-init"), 0)
    )
