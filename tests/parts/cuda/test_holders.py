"""What the kernel shows of processes that have to do with a GPU, and what stands in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_reclaim.adapters.cuda import blockers, cards, holders
from slurm_reclaim.adapters.cuda.driver import Driver
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.errors import GpuUnavailable
from slurm_reclaim.model.node_session import GpuGrant
from tests.parts.cuda.conftest import MIB, Node, Session, until, uuid

Start = Callable[..., Session]
# Maps the files that it is given, and keeps each as an open file, too.
MAPPER = """
import mmap, sys, time
kept = [open(path, "rb") for path in sys.argv[1:]]
maps = [mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) for f in kept if f.seek(0, 2)]
print("ready", flush=True)
time.sleep(600)
"""
Run = Callable[..., holders.Holder]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A process that has files of these names mapped, seen by the agent."""
    started: list[subprocess.Popen[str]] = []

    def of(*names: str, opened: tuple[str, ...] = (), **environment: str) -> holders.Holder:
        paths = []
        for name in names:
            path = tmp_path / name
            path.write_text("x" * 5000)
            paths.append(str(path))
        words = [sys.executable, "-c", MAPPER, *paths, *opened]
        env = {**os.environ, **environment}
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env)
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        process = tree.read(child.pid)
        assert process is not None
        return holders.look(process)

    yield of
    for child in started:
        child.kill()
        child.wait()


def test_what_was_replaced_since_is_still_known(run: Run, tmp_path: Path) -> None:
    """An update of the driver takes the file away that a process has mapped."""
    holder = run("libcuda.so.580.65.06")
    assert holder.libcuda
    (tmp_path / "libcuda.so.580.65.06").unlink()
    assert holders.look(holder.process).libcuda


@pytest.fixture
def device() -> Iterator[str]:
    path = "/dev/nvidia77"
    if os.geteuid() != 0:
        pytest.skip("device files need root")
    os.mknod(path, 0o020600, os.makedev(1, 3))
    yield path
    os.unlink(path)


def names(holder: holders.Holder) -> list[str]:
    return [blocker.name for blocker in blockers.of_holder(holder, "")]


def test_libraries_are_told_by_their_names(run: Run) -> None:
    seen = run("libcuda.so.580.65.06", "libcudart-a1b2.so.12")
    assert seen.libcuda
    assert seen.framework.endswith("libcudart-a1b2.so.12")
    assert (seen.tool, names(seen)) == ("", [])


def test_what_only_looks_like_the_driver_is_not(run: Run) -> None:
    seen = run("libcudadevrt.so.1", "libcuda.so.txt")
    assert (seen.libcuda, seen.devices) == (False, frozenset())
    assert holders.find([seen.process]) == []


def test_tools_and_injections_are_named(run: Run) -> None:
    assert names(run("libcuda.so.1", "libToolsInjection64.so")) == ["gpu-profiler"]
    assert names(run("libcuda.so.1", CUDA_INJECTION64_PATH="/x.so")) == ["gpu-profiler"]
    assert names(run("libcuda.so.1", CUDA_MPS_PIPE_DIRECTORY="/tmp/mps")) == ["mps"]
    # PyTorch maps it always.
    assert names(run("libcuda.so.1", "libcupti.so.12")) == []


def test_what_a_user_wrote_drives_no_terminal(run: Run) -> None:
    seen = run("libcuda.so.1", CUDA_INJECTION64_PATH="/x\x1b[2J\ny")
    (blocker,) = blockers.of_holder(seen, "")
    assert blocker.what.endswith("CUDA_INJECTION64_PATH=/x?[2J y")


def test_one_that_inherited_a_card_is_named_by_it(run: Run, device: str) -> None:
    seen = run("libcuda.so.1", opened=(device,))
    assert seen.gpu == {device}
    (blocker,) = blockers.of_holder(seen, "CUDA_ERROR_INVALID_VALUE")
    assert blocker.name == "gpu-fork"
    assert device in blocker.what
    assert "CUDA_ERROR_INVALID_VALUE" in blocker.what
    assert names(seen) == []


def test_a_dashboard_is_told_from_a_forked_child(run: Run, device: str) -> None:
    (blocker,) = blockers.of_holder(run("libnvidia-ml.so.1", opened=(device,)), "NO")
    assert blocker.name == "gpu-nvml"
    both = run("libnvidia-ml.so.1", "libcuda.so.1", opened=(device,))
    assert [b.name for b in blockers.of_holder(both, "NO")] == ["gpu-fork"]


def test_other_files_of_nvidia_are_not_spoken_for(run: Run) -> None:
    assert not holders.DEVICE.match("/dev/nvidia-caps/nvidia-cap1")
    assert not holders.DEVICE.match("/dev/nvidia-uvm-tools")
    assert not holders.DEVICE.match("/dev/nvidia0/x")
    assert run("libcuda.so.1", opened=("/dev/null",)).devices == frozenset()


def test_ranks_of_one_program_are_peers(run: Run) -> None:
    first = run("libcuda.so.1", WORLD_SIZE="2")
    second = run("libcuda.so.1", WORLD_SIZE="2")
    assert list(blockers.of_peers([first])) == []
    assert {b.name for b in blockers.of_peers([first, second])} == {"gpu-peers"}
    alone = run("libcuda.so.1")
    assert list(blockers.of_peers([alone, run("libcuda.so.1")])) == []


def test_shared_gpu_memory_shows_in_dev_shm(run: Run) -> None:
    path = Path("/dev/shm/nccl-test-parts")
    path.write_text("x" * 4096)
    try:
        seen = run("libcuda.so.1", opened=(str(path),))
        (blocker,) = blockers.of_peers([seen])
        assert (blocker.name, str(path) in blocker.what) == ("gpu-peers", True)
    finally:
        path.unlink()


@pytest.mark.parametrize(
    ("driver", "framework", "wanted"),
    [
        ("580.65.06", True, []),
        ("575.57.08", True, []),
        ("575.51.03", True, ["gpu-driver"]),
        ("575.51.03", False, []),
        ("570.86.15", False, []),
        ("565.57.01", False, ["gpu-driver"]),
        ("", False, ["gpu-driver"]),
    ],
)
def test_driver_floors(run: Run, driver: str, framework: bool, wanted: list[str]) -> None:
    seen = run("libcuda.so.1", *(["libcublasLt.so.12"] if framework else []))
    assert [b.name for b in blockers.of_driver(driver, [seen])] == wanted


@pytest.mark.parametrize(
    ("grant", "mig", "wanted"),
    [
        (GpuGrant((0,), 2, 1), (), []),
        (GpuGrant((0, 1), 2, 2), (), []),
        (GpuGrant((0, 1), 2, 1), (), ["gpu-unconstrained"]),
        (GpuGrant((0,), 2, 0, "shard"), (), ["gpu-share"]),
        (GpuGrant((0,), 2, 1, "mps"), (), ["mps"]),
        (GpuGrant((0,), 2, 0, "unknown"), (), []),
        (GpuGrant((0,), 2, 1), (uuid(0),), ["mig"]),
        (None, (), ["gpu-unconstrained"]),
    ],
)
def test_grants(grant: GpuGrant | None, mig: tuple[str, ...], wanted: list[str]) -> None:
    assert [b.name for b in blockers.of_grant(grant, mig)] == wanted


# -- of a session --------------------------------------------------------------------------------


def blocked(session: Session, **settings: object) -> dict[str, str]:
    found = session.state(**settings).blockers(session.members())
    return {blocker.name: blocker.what for blocker in found}


def test_a_split_card_and_an_old_driver_are_named(start: Start, node: Node) -> None:
    session = start()
    node.per_card = ["mig 1"]
    node.write()
    assert "mig" in blocked(session)


def test_what_nvml_does_not_tell_is_named(start: Start, node: Node) -> None:
    session = start()
    node.write("error nvmlDeviceGetComputeRunningProcesses* NOT_SUPPORTED")
    found = blocked(session)
    assert list(found) == ["gpu-memory-unknown"]
    assert "not supported" in found["gpu-memory-unknown"]


class Told:
    """NVML's watch, with one round for whoever asks."""

    def __init__(self, *processes: tuple[int, int | None], used: int = 0) -> None:
        card = {"index": 0, "uuid": uuid(0), "model": "S", "minor": 0, "mig": False}
        card |= {"memory": [1024 * MIB, used], "processes": [[p, n, 0] for p, n in processes]}
        self._round = {"at": 0.0, "driver": "580.65.06", "cards": [card]}

    def ask(self) -> None: ...

    def rounds(self, after: float) -> tuple[list[object], str]:
        return [self._round], ""


def test_what_is_held_is_counted_for_the_session_alone(start: Start) -> None:
    session = start()
    pid = next(p.pid for p in session.members() if "python" in p.name)
    told = Told((pid, 3 * MIB), (1, 50 * MIB), used=60 * MIB)
    seen = cards.look(session.record, told, [pid])  # type: ignore[arg-type]
    assert (seen.used, seen.pids, seen.free) == (3 * MIB, {pid}, {uuid(0): 964 * MIB})


def test_with_one_that_nvml_leaves_out_all_counts_that_is_nobody_elses(start: Start) -> None:
    session = start()
    told = Told((1, 50 * MIB), used=60 * MIB)
    assert cards.look(session.record, told).used == 0  # type: ignore[arg-type]
    assert cards.look(session.record, told, [4711]).used == 10 * MIB  # type: ignore[arg-type]


def test_memory_that_nvml_does_not_know_is_not_none(start: Start) -> None:
    session = start()
    pid = next(p.pid for p in session.members() if "python" in p.name)
    with pytest.raises(GpuUnavailable, match=f"does not tell the memory of PID {pid}"):
        cards.look(session.record, Told((pid, None)))  # type: ignore[arg-type]


def test_a_locked_process_is_not_ours_to_take(start: Start) -> None:
    session = start()
    process = next(p for p in session.members() if "python" in p.name)
    with Driver("", environment=session.node.environment) as driver:
        driver.lock(process, 3.0)
        assert blocked(session)["gpu-state"] == f"the GPU state of {process} is locked"
        driver.unlock(process)
    assert blocked(session) == {}


def test_a_stopped_process_is_named(start: Start) -> None:
    session = start()
    process = next(p for p in session.members() if "python" in p.name)
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: (seen := tree.read(process.pid)) is not None and seen.state == "T")
    try:
        assert list(blocked(session)) == ["gpu-stopped"]
    finally:
        os.kill(process.pid, signal.SIGCONT)


def test_a_driver_that_does_not_answer_stands_in_the_way(start: Start, node: Node) -> None:
    session = start()
    node.write("delay cuCheckpointProcessGetState 1000")
    found = blocked(session)
    assert list(found) == ["gpu-unknown"]
    assert "did not come back within 3 s" in found["gpu-unknown"]


def test_a_node_without_our_tools_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    session = start()
    monkeypatch.setattr("slurm_reclaim.adapters.cuda.driver.sys.executable", "/usr/bin/python3")
    assert list(blocked(session, cuda_checkpoint="/nowhere")) == ["gpu-tools"]
