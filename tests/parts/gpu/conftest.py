"""The real nvidia-ml-py on the simulated library, and a session to be measured."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_reclaim.adapters.gpu.meter import GpuMeter
from slurm_reclaim.adapters.gpu.nvml_child import Node
from slurm_reclaim.adapters.gpu.watch import NvmlWatch, Round
from slurm_reclaim.model.node_session import GpuGrant, NodeSession
from slurm_reclaim.model.order import Living

QUIET = ("gpu", "memory", "encoder", "decoder")


@pytest.fixture(scope="session")
def library(simulated: Path) -> Path:
    return simulated / "libnvidia-ml.so.1"


def card(minor: int, *lines: str, samples: str = "0.1:0", name: str = "Simulated GPU") -> str:
    """A card that does nothing but what `lines` say; its UUID ends with its minor number."""
    given = {line.split()[0] + line.split()[1] for line in lines if line.startswith(("s", "w"))}
    quiet = [
        f"samples {kind} {samples}"
        for kind in QUIET
        if not given & {f"samples{kind}", f"wave{kind}"} and samples
    ]
    head = ["card", f"uuid GPU-{minor}", f"name {name}", f"minor {minor}", "vram 1000 10"]
    return "\n".join([*head, "rates 0 0 0 0", "pcie 0 0", *quiet, *lines]) + "\n"


@pytest.fixture
def script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:  # script(*parts), in one go
    path = tmp_path / "nvml"
    monkeypatch.setenv("NVML_SIMULATED", str(path))

    def write(*parts: str) -> None:
        fresh = path.with_suffix(".new")
        fresh.write_text("\n".join(parts) + "\n")
        fresh.rename(path)

    write(card(0))
    return write


@pytest.fixture
def node(library: Path, script: Callable[..., None]) -> Iterator[Node]:
    """The child's own reading of all cards, in this process."""
    ctypes.CDLL(str(library))  # found again by its soname when nvidia-ml-py asks for that
    import pynvml

    opened = Node(pynvml)
    opened.open()
    yield opened
    script(card(0))
    pynvml.nvmlShutdown()


@pytest.fixture
def watch(library: Path, script: Callable[..., None]) -> Iterator[NvmlWatch]:
    """With a real child; `script` changes what it sees."""
    made = NvmlWatch(
        {
            "LD_LIBRARY_PATH": str(library.parent),
            "NVML_SIMULATED": os.environ["NVML_SIMULATED"],
        }
    )
    yield made
    made.close()


@dataclass
class Job:
    """A session with processes of its own PID namespace; `inside` is one besides its init."""

    init: int
    inside: int


@pytest.fixture
def job() -> Iterator[Job]:
    if os.geteuid() != 0:
        pytest.skip("PID namespaces need root")
    outer = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "sleep 600 & wait"]
    )
    try:
        init = child_of(outer.pid)
        yield Job(init, child_of(init))
    finally:
        outer.kill()
        outer.wait()


def child_of(pid: int) -> int:
    for _ in range(100):
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if words:
            return int(words[0])
        time.sleep(0.02)
    raise AssertionError(f"{pid} has no child")


class InStep:
    """Stands where the watch does, with rounds taken in this process at times that a test sets:
    minutes pass at once."""

    def __init__(self, node: Node, at: Callable[[float], None]) -> None:
        self._node = node
        self._at = at
        self._rounds: list[Round] = []

    def take(self, now: float) -> None:
        self._at(now)
        self._rounds.append(self._node.round(now))

    def rounds(self, after: float) -> tuple[list[Round], str]:
        return [r for r in self._rounds if r["at"] > after], "no round"


def session(init: int = 0, gpus: GpuGrant | None = None) -> NodeSession:
    return NodeSession(
        job_id=1,
        uid=0,
        gid=0,
        restarts=0,
        mode="fresh",
        living=Living.RUNNING,
        init=init,
        gpus=gpus,
    )


def meter(
    watch: NvmlWatch | InStep,
    *reachable: int,
    present: int = 2,
    init: int = 0,
    granted: int | None = None,
    shared: str = "",
    clock: Callable[[], float] = time.time,
) -> GpuMeter:
    count = len(reachable) if granted is None else granted
    grant = GpuGrant(tuple(reachable), present, count, shared)
    return GpuMeter(session(init, grant), grant, watch, clock)  # type: ignore[arg-type]
