"""The simulated CUDA driver: sessions on it, and who asks for their checkpoints.

Everything runs twice: the library as it is installed, asked through the real cuda-bindings; and
with the address and undefined behaviour sanitizers in both the session and who asks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SIMULATED = Path(__file__).parents[2] / "gpu"
SESSION = SIMULATED / "cuda_session.py"
ASKER = Path(__file__).with_name("asker.py")
MIB = 1 << 20
GIB = 1 << 30
PATIENCE = 30.0


def until(seen: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = seen()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not seen: {what}")


def children(pid: int) -> list[int]:
    """Of all its threads; nothing of procps is needed, which small machines lack."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for each in lists for word in each.read_text().split()]


def uuid(number: int) -> str:
    return f"GPU-51b00000-0000-0000-0000-{number:012x}"


def card(number: int, *lines: str, minor: int | None = None, vram: int = GIB, used: int = 0) -> str:
    """`number` makes the UUID, `minor` the device file (default: the same)."""
    file = number if minor is None else minor
    head = ["card", f"uuid {uuid(number)}", "name Simulated GPU", f"minor {file}"]
    return "\n".join([*head, f"vram {vram} {used}", *lines])


@dataclass(frozen=True)
class Built:
    """`sanitizer`: what is in the environment of its programs; none for the plain one."""

    directory: Path
    sanitizer: dict[str, str]

    @property
    def sanitized(self) -> bool:
        return bool(self.sanitizer)


@pytest.fixture(scope="session", params=["plain", "sanitized"])
def built(request: pytest.FixtureRequest) -> Built:
    if request.param == "plain":
        return Built(request.getfixturevalue("simulated"), {})
    sanitizer = request.getfixturevalue("sanitizer")
    return Built(request.getfixturevalue("sanitized"), sanitizer)


@dataclass
class Session:
    process: subprocess.Popen[str]
    out: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def lines(self, pid: int = 0) -> list[list[str]]:
        """count, pid, node, uuid, ok|bad, of this process."""
        text = self.out.read_text() if self.out.exists() else ""
        rows = [line.split() for line in text.splitlines()]
        return [row for row in rows if row[1] == str(pid or self.pid)]

    def next_lines(self) -> list[list[str]]:
        """A whole round that begins after now."""
        had = int(self.lines()[-1][0]) if self.lines() else 0
        until(lambda: self.lines() and int(self.lines()[-1][0]) >= had + 3, "a round")
        return [row for row in self.lines() if int(row[0]) == had + 2]

    def is_well(self) -> bool:
        return all(row[4] == "ok" for row in self.next_lines())

    def stands_still(self) -> bool:
        before = len(self.lines())
        time.sleep(0.5)
        return len(self.lines()) == before

    def open_devices(self) -> list[str]:
        files = [os.readlink(path) for path in Path(f"/proc/{self.pid}/fd").iterdir()]
        return sorted(Path(name).name for name in files if "/nvidia" in name)


@dataclass
class Node:
    """A node with simulated GPUs, whose script tests write anew with `says`."""

    built: Built
    place: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def says(self, *parts: str) -> None:
        fresh = self.place / "script.new"
        fresh.write_text("\n".join(parts) + "\n")
        fresh.rename(self.place / "script")

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(self.built.directory),
            "NVML_SIMULATED": str(self.place / "script"),
            "SIMULATED_GPU_DEVICES": str(self.place / "dev"),
            "SIMULATED_GPU_MEMORY": str(self.place / "memory"),
            **self.built.sanitizer,
            **more,
        }

    def start(self, *argv: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        log = (self.place / "stderr").open("a")
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=self.environment(**(env or {})),
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def session(self, *options: str, **env: str) -> Session:
        """Up and with a first round done."""
        out = self.place / f"out-{len(self.started)}"
        argv = [sys.executable, str(SESSION), "--out", str(out), "--interval", "0.1", *options]
        made = Session(self.start(*argv, env=env), out)
        until(lambda: made.lines() or made.process.poll() is not None, "the session's first round")
        assert made.process.poll() is None, (self.place / "stderr").read_text()
        return made

    def device_memory(self) -> int:
        """Bytes that lie in files for the cards."""
        return sum(path.stat().st_size for path in (self.place / "memory").iterdir())


def may_only_trace_children() -> bool:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return scope.exists() and scope.read_text().strip() != "0"


@pytest.fixture
def node(built: Built, tmp_path: Path) -> Iterator[Node]:
    """Two cards."""
    if os.geteuid() != 0 and may_only_trace_children():
        pytest.skip("the memory of another process needs root on this machine")
    made = Node(built, tmp_path)
    for name in ("dev", "memory"):
        (tmp_path / name).mkdir()
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in range(4))):
        (tmp_path / "dev" / name).touch()
    made.says(card(0), card(1))
    yield made
    for process in made.started:
        # What it has forked is of its group, whether or not it is still there itself.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for process in made.started:
        process.wait()
    complaints = (tmp_path / "stderr").read_text() if (tmp_path / "stderr").exists() else ""
    for word in ("Sanitizer", "runtime error"):
        assert word not in complaints, complaints


class Asker:
    """A process that asks for checkpoints, as the agent's child does."""

    def __init__(self, node: Node) -> None:
        way = "ctypes" if node.built.sanitized else "bindings"
        self.process = node.start(sys.executable, str(ASKER), way)

    def send(self, call: str, pid: int = 0, argument: Any = None) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([call, pid, argument]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> tuple[str, Any]:
        assert self.process.stdout is not None
        result, value = json.loads(self.process.stdout.readline())
        return result.removeprefix("CUDA_").removeprefix("ERROR_"), value

    def __call__(self, call: str, pid: int = 0, argument: Any = None) -> str:
        """The result's name, without CUDA_ERROR_."""
        self.send(call, pid, argument)
        return self.answer()[0]

    def value(self, call: str, pid: int) -> int:
        self.send(call, pid)
        result, value = self.answer()
        assert result == "SUCCESS"
        return value

    def state(self, pid: int) -> str:
        return ("running", "locked", "checkpointed", "failed")[self.value("state", pid)]

    def checkpointed(self, session: Session) -> None:
        assert self("lock", session.pid, 5000) == "SUCCESS"
        assert self("checkpoint", session.pid) == "SUCCESS"

    def brought_back(self, session: Session, pairs: list[tuple[str, str]] | None = None) -> None:
        assert self("restore", session.pid, pairs) == "SUCCESS"
        assert self("unlock", session.pid) == "SUCCESS"


@pytest.fixture
def ask(node: Node) -> Asker:
    made = Asker(node)
    assert made("init") == "SUCCESS"
    return made
