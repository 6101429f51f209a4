"""A job's memory limit raised and put back: on the kernel's own cgroups where there are such of
version 1, and on files that look like those of version 2."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_reclaim.adapters.proc import cgroup, headroom, memory_limit
from slurm_reclaim.adapters.proc.memory_limit import MemoryLimit
from slurm_reclaim.errors import OperationFailed, StoreUnavailable
from slurm_reclaim.model.node_session import Limit, NodeSession
from slurm_reclaim.model.order import Living

MIB = 1 << 20
V1 = Path("/sys/fs/cgroup/memory")
STEP = "step_batch/user/task_0"


def record(pid: int) -> NodeSession:
    return NodeSession(1, 0, 0, 0, "fresh", Living.RUNNING, relay=pid)


@pytest.fixture
def job() -> Iterator[tuple[Path, int]]:
    """A job's directory with limits of 64 MiB at job and step, and a process in its task."""
    if os.geteuid() != 0 or not (V1 / "memory.limit_in_bytes").exists():
        pytest.skip("no memory cgroups of version 1")
    top = V1 / f"slurm-reclaim-unit-{os.getpid()}"
    path = top / "job_1"
    (path / STEP).mkdir(parents=True)
    for folder in (path, path / "step_batch"):
        (folder / "memory.limit_in_bytes").write_text(str(64 * MIB))
    child = subprocess.Popen(["sleep", "600"])
    (path / STEP / "cgroup.procs").write_text(str(child.pid))
    yield path, child.pid
    child.kill()
    child.wait()
    for folder in (path / STEP, path / "step_batch/user", path / "step_batch", path, top):
        folder.rmdir()


def limits(path: Path) -> list[int]:
    folders = (path, path / "step_batch", path / STEP)
    return [int((f / "memory.limit_in_bytes").read_text()) // MIB for f in folders]


def test_every_level_is_raised_and_put_back(job: tuple[Path, int]) -> None:
    path, pid = job
    session = record(pid)
    saved: list[tuple[Limit, ...]] = []
    limit = MemoryLimit(session, True, lambda: saved.append((session.limits, limits(path)[0])))
    assert limit.lacks(200 * MIB, most=200 * MIB) == ""
    limit.make_room(200 * MIB)
    (told,) = saved
    # Durable before the first was written.
    assert told[1] == 64
    assert len(told[0]) == 2
    assert all(mib >= 200 for mib in limits(path)[:2])
    room = headroom.of_job(pid)
    assert room is not None
    assert room >= 200 * MIB
    limit.put_back()
    assert limits(path)[:2] == [64, 64]
    assert session.limits == ()


def test_raised_twice_it_is_put_back_to_what_it_was_first(job: tuple[Path, int]) -> None:
    path, pid = job
    limit = MemoryLimit(record(pid), True, lambda: None)
    limit.make_room(100 * MIB)
    limit.make_room(300 * MIB)
    limit.put_back()
    assert limits(path)[:2] == [64, 64]


def test_another_agent_puts_it_back(job: tuple[Path, int]) -> None:
    path, pid = job
    first = record(pid)
    MemoryLimit(first, True, lambda: None).make_room(100 * MIB)
    second = record(pid)
    second.limits = first.limits
    MemoryLimit(second, False, lambda: None).put_back()
    assert limits(path)[:2] == [64, 64]


def test_nothing_is_raised_that_could_not_be_put_back(job: tuple[Path, int]) -> None:
    path, pid = job

    def full() -> None:
        raise StoreUnavailable("no space left")

    with pytest.raises(StoreUnavailable):
        MemoryLimit(record(pid), True, full).make_room(200 * MIB)
    assert limits(path)[:2] == [64, 64]


def test_where_the_site_does_not_allow_it_the_lack_is_told(job: tuple[Path, int]) -> None:
    path, pid = job
    limit = MemoryLimit(record(pid), False, lambda: None)
    assert "of memory more" in limit.lacks(200 * MIB, most=200 * MIB)
    limit.make_room(200 * MIB)
    assert limits(path)[:2] == [64, 64]
    allowed = MemoryLimit(record(pid), True, lambda: None)
    # Not for what will stay in the job's memory, nor for more than the node has.
    assert "of memory more" in allowed.lacks(200 * MIB, most=MIB)
    assert "available on the node" in allowed.lacks(1 << 50, most=1 << 50)


def test_what_the_job_took_meanwhile_is_not_given_to_it(
    job: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken from it would mean ended. But its limit comes down to what it uses, and is not raised
    again, however often it is to be saved."""
    monkeypatch.setattr(memory_limit, "_PATIENCE", 0.2)
    path, _ = job
    words = [sys.executable, "-c", f"input(); x = bytearray({150 * MIB}); print(1); input()"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as greedy:
        assert greedy.stdin
        assert greedy.stdout
        (path / STEP / "cgroup.procs").write_text(str(greedy.pid))
        limit = MemoryLimit(record(greedy.pid), True, lambda: None)
        limit.make_room(1000 * MIB)
        greedy.stdin.write("\n")
        greedy.stdout.readline()
        limit.put_back()
        assert 150 < limits(path)[0] < 300
        assert "raised by before" in limit.lacks(1000 * MIB, most=1000 * MIB)
        greedy.kill()
    limit.put_back()
    assert limits(path)[:2] == [64, 64]
    assert limit.lacks(1000 * MIB, most=1000 * MIB) == ""


def test_two_at_once_must_fit_into_the_node_together(
    second: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each alone does. What did not end well is forgotten with its dump."""
    second()
    monkeypatch.setattr(headroom, "of_node", lambda: 10 << 30)
    one, other = (MemoryLimit(record(1), True, lambda: None) for _ in range(2))
    for limit in (one, other):
        assert limit.lacks(6 << 30, most=6 << 30) == ""
    one.make_room(6 << 30)
    one.make_room(6 << 30)
    with pytest.raises(OperationFailed, match="others that are being saved"):
        other.make_room(6 << 30)
    assert other._session.limits == ()
    one.put_back()
    other.make_room(6 << 30)
    del other, limit
    one.make_room(6 << 30)


@pytest.mark.parametrize("limited", [True, False])
def test_a_node_without_room_is_seen_whatever_the_job_may_take(
    second: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    job = second()
    if not limited:
        (job / "memory.max").write_text("max\n")
    monkeypatch.setattr(headroom, "of_node", lambda: 20 * MIB)
    limit = MemoryLimit(record(1), False, lambda: None)
    assert "available on the node" in limit.lacks(30 * MIB, most=30 * MIB)


@pytest.fixture
def second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A job's directory as version 2 has it, of which this process is told to be a part."""
    job = tmp_path / "job_1"
    (job / STEP).mkdir(parents=True)

    def made(current: int = 10, cache: int = 0) -> Path:
        for folder in (job, job / "step_batch"):
            (folder / "memory.max").write_text(f"{64 * MIB}\n")
            (folder / "memory.high").write_text("max\n")
            (folder / "memory.current").write_text(f"{current * MIB}\n")
            (folder / "memory.stat").write_text(f"anon 5\nactive_file {cache * MIB}\n")
        monkeypatch.setattr(cgroup, "of_process", lambda _: {cgroup.V2: str(job)})
        monkeypatch.setattr(headroom, "of_process", lambda _: {cgroup.V2: str(job)})
        text = f"0::/slurmstepd.scope/job_1/{STEP}\n"
        monkeypatch.setattr(memory_limit, "kernel_text", lambda _: text)
        return job

    return made


def v2(job: Path) -> list[str]:
    return [(f / "memory.max").read_text().strip() for f in (job, job / "step_batch")]


def test_version_2_is_raised_and_put_back(second: Callable[..., Path]) -> None:
    job, session = second(), record(1)
    limit = MemoryLimit(session, True, lambda: None)
    limit.make_room(100 * MIB)
    assert v2(job) == [str(110 * MIB)] * 2
    assert (job / "memory.high").read_text() == "max\n"
    limit.put_back()
    # These files keep what was longer, the kernel's do not.
    assert [text[: len(str(64 * MIB))] for text in v2(job)] == [str(64 * MIB)] * 2
    assert session.limits == ()


def test_version_2_is_not_put_below_what_is_used(
    second: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel would end processes until it fits."""
    monkeypatch.setattr(memory_limit, "_PATIENCE", 0.2)
    job, session = second(), record(1)
    limit = MemoryLimit(session, True, lambda: None)
    limit.make_room(200 * MIB)
    before = v2(job)
    second_current = str(150 * MIB)
    for folder in (job, job / "step_batch"):
        (folder / "memory.current").write_text(second_current)
    limit.put_back()
    assert v2(job) == before
    assert len(session.limits) == 2
    # Page cache does not count: it is given back.
    for folder in (job, job / "step_batch"):
        (folder / "memory.stat").write_text(f"active_file {100 * MIB}\n")
    limit.put_back()
    assert session.limits == ()
