"""Real processes with simulated CUDA state, in a PID namespace as a session's, and the real
cuda-bindings and nvidia-ml-py on the simulated libraries."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_reclaim.adapters.cuda.driver import Driver
from slurm_reclaim.adapters.cuda.state import CudaState
from slurm_reclaim.adapters.gpu.watch import NvmlWatch
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.tree import Process
from slurm_reclaim.config.schema import Gpu, Seconds
from slurm_reclaim.config.schema import Path as Setting
from slurm_reclaim.model.node_session import GpuGrant, NodeSession
from slurm_reclaim.model.order import Living

CLIENT = Path(__file__).parents[2] / "gpu/cuda_session.py"
MIB = 1 << 20


def uuid(minor: int) -> str:
    return f"GPU-51b00000-0000-0000-0000-{minor:012x}"


@dataclass
class Node:
    """Two simulated cards; `script` is what the libraries read anew at each call."""

    libraries: Path
    folder: Path
    cards: int = 2
    taken: int = 0  # bytes on each card that are nobody's
    model: str = "Simulated GPU"
    driver: str = "580.65.06"
    extra: list[str] = field(default_factory=list)
    per_card: list[str] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)  # minors of cards that have fallen off the bus

    def __post_init__(self) -> None:
        for name in ("devices", "memory"):
            (self.folder / name).mkdir()
        self.write()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_LIBRARY_PATH": str(self.libraries),
            "NVML_SIMULATED": str(self.folder / "nvml"),
            "SIMULATED_GPU_DEVICES": str(self.folder / "devices"),
            "SIMULATED_GPU_MEMORY": str(self.folder / "memory"),
        }

    def write(self, *extra: str) -> None:
        """The script, with these lines before the first card."""
        self.extra = list(extra)
        lines = [f"driver {self.driver}", *extra]
        for minor in range(self.cards):
            lines += ["card", f"uuid {uuid(minor)}", f"name {self.model}", f"minor {minor}"]
            lines += [f"vram {1024 * MIB} {self.taken}", "rates 0 0 0 0", "pcie 0 0"]
            lines += self.per_card
            lines += ["lost", "error * GPU_IS_LOST"] if minor in self.lost else []
        fresh = self.folder / "nvml.new"
        fresh.write_text("\n".join(lines) + "\n")
        fresh.rename(self.folder / "nvml")

    def lose(self, minor: int) -> None:
        """One card falls off the bus; the driver can be asked as long as there is another one."""
        self.lost.add(minor)
        self.open(*range(self.cards))
        self.write(*self.extra)

    def open(self, *minors: int) -> None:
        """The device files that can be opened."""
        for path in (self.folder / "devices").iterdir():
            path.unlink()
        for minor in minors:
            (self.folder / "devices" / f"nvidia{minor}").touch()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_reclaim.adapters.cuda.driver.LOOK_LONGEST", 3.0)


@pytest.fixture
def node(simulated: Path, tmp_path: Path) -> Node:
    made = Node(simulated, tmp_path)
    made.open(0)
    return made


@dataclass
class Session:
    """`out` has a line `COUNT PID NODE UUID ok|bad|ERROR` for each round and card."""

    node: Node
    init: int
    out: Path
    record: NodeSession
    watch: NvmlWatch
    saved: list[NodeSession] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)

    def members(self) -> list[Process]:
        return tree.members(self.init)

    def state(self, **settings: object) -> CudaState:
        config = {
            "lock_timeout": Seconds(3),
            "call_timeout": Seconds(3),
            "time_per_gib": Seconds(0),
        }
        config["cuda_checkpoint"] = Setting(str(self.node.libraries / "cuda-checkpoint"))
        return CudaState(
            self.record,
            Gpu(**{**config, **settings}),  # type: ignore[arg-type]
            lambda: self.saved.append(copy.copy(self.record)),
            self.workers.append,
            self.watch,
            self.node.environment,
        )

    def rounds(self) -> list[list[str]]:
        return [line.split() for line in self.out.read_text().splitlines()]

    def computes(self, on: str = "") -> None:
        """Every one of its processes goes on, with the memory that it had, on this card."""
        pids = {words[1] for words in self.rounds()}
        before = len(self.rounds())
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            fresh = self.rounds()[before + len(pids) :]
            if {words[1] for words in fresh} == pids:
                break
            time.sleep(0.05)
        else:
            raise AssertionError(f"no more rounds: {self.rounds()[-3:]}")
        assert {words[4] for words in fresh} == {"ok"}, fresh
        assert not on or {words[3] for words in fresh} == {on}

    def states(self) -> list[str]:
        with Driver("", environment=self.node.environment) as driver:
            return [driver.state(p) for p in self.members() if driver.has_state(p)]


@pytest.fixture
def start(node: Node, tmp_path: Path) -> Iterator[Callable[..., Session]]:
    if os.geteuid() != 0:
        pytest.skip("PID namespaces need root")
    started: list[subprocess.Popen[bytes]] = []
    watch = NvmlWatch(node.environment)

    def run(*options: str, granted: Sequence[int] = (0,), processes: int = 1) -> Session:
        node.open(*granted)
        out = tmp_path / "out"
        words = [sys.executable, str(CLIENT), "--out", str(out), "--interval", "0.05"]
        inside = f"exec 2>&1; {' '.join([*words, *options])} & wait"
        outer = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", inside],
            env={**os.environ, **node.environment},
        )
        started.append(outer)
        init = _child_of(outer.pid)
        grant = GpuGrant(tuple(granted), node.cards, len(granted))
        record = NodeSession(
            job_id=1, uid=0, gid=0, restarts=0, mode="fresh", living=Living.RUNNING,
            init=init, init_start=tree.start_time(init), gpus=grant,
        )  # fmt: skip
        session = Session(node, init, out, record, watch)
        until(lambda: out.exists() and len({w[1] for w in session.rounds()}) == processes)
        return session

    yield run
    for outer in started:
        outer.send_signal(signal.SIGKILL)
        outer.wait()
    watch.close()


def until(what: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def _child_of(pid: int) -> int:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    until(lambda: path.read_text().split())
    return int(path.read_text().split()[0])


@pytest.fixture
def fail_at(node: Node, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """From the `position`th call of `action` on the script has this line; with `once` only for
    that call. Gives the list of actions as they are asked for."""

    def arrange(action: str, position: int, line: str, once: bool = True) -> list[str]:
        asked: list[str] = []
        ask = Driver._ask

        def counted(driver: Driver, doing: str, *rest: object, **more: object) -> object:
            asked.append(doing)
            here = doing == action and asked.count(action) == position + 1
            if here:
                node.write(line)
            try:
                return ask(driver, doing, *rest, **more)  # type: ignore[arg-type]
            finally:
                if here and once:
                    node.write()

        monkeypatch.setattr(Driver, "_ask", counted)
        return asked

    return arrange
