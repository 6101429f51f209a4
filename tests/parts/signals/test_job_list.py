"""The processes of a job as its cgroup names them, in both versions."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_reclaim.adapters.proc import job_list
from slurm_reclaim.adapters.proc.census import Census, Processes
from slurm_reclaim.adapters.proc.job_list import JobList

NUMBERS = itertools.count(os.getpid() * 100)
PLACES = {
    "v1": Path("/sys/fs/cgroup/freezer"),
    "v2": next(
        (p for p in map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"))
         if (p / "cgroup.controllers").exists()),
        Path("/nowhere"),
    ),
}  # fmt: skip


class Job:
    def __init__(self, version: str) -> None:
        self.top = PLACES[version] / "slurm-reclaim-unit" / f"job_{next(NUMBERS)}"
        self.list = JobList(str(self.top), version2=version == "v2")
        self.sleepers: list[subprocess.Popen[bytes]] = []

    def step(self, name: str) -> Path:
        path = self.top / name
        path.mkdir(parents=True)
        return path

    def sleep(self, step: Path, *, program: str = "exec sleep 99") -> int:
        def enter() -> None:
            (step / "cgroup.procs").write_text("0")

        self.sleepers.append(subprocess.Popen(["sh", "-c", program], preexec_fn=enter))
        return self.sleepers[-1].pid

    def kill(self, pid: int) -> None:
        (one,) = [s for s in self.sleepers if s.pid == pid]
        one.kill()
        one.wait()

    def remove(self, path: Path) -> None:
        deadline = time.monotonic() + 10
        for folder, _, _ in os.walk(path, topdown=False):
            while Path(folder).exists():
                assert time.monotonic() < deadline
                with suppress(OSError):
                    os.rmdir(folder)
                time.sleep(0.01)


@pytest.fixture(params=["v1", "v2"])
def job(request):
    if os.geteuid() != 0 or not PLACES[request.param].is_dir():
        pytest.skip(f"no cgroup {request.param} to write to")
    one = Job(request.param)
    yield one
    for sleeper in one.sleepers:
        sleeper.kill()
        sleeper.wait()
    one.remove(one.top)


def test_all_steps_however_deep_and_who_comes_and_goes(job):
    batch = job.step("step_batch")
    task = job.step("step_0/user/task_0")
    first, second = job.sleep(batch), job.sleep(task)
    assert job.list.pids() == {first, second}
    third = job.sleep(task)
    job.kill(first)
    assert job.list.pids() == {second, third}


def test_a_step_that_begins_and_one_that_ends_between_two_lists(job):
    """Of which the number of directories tells nothing."""
    batch, old = job.step("step_batch"), job.step("step_0")
    first, second = job.sleep(batch), job.sleep(old)
    assert job.list.pids() == {first, second}
    job.kill(second)
    job.remove(old)
    third = job.sleep(job.step("step_1"))
    assert job.list.pids() == {first, third}


def test_who_is_in_no_step(job):
    job.step("step_0/user")
    stray = job.sleep(job.top / "step_0" / "..")
    first = job.sleep(job.top / "step_0/user")
    assert job.list.pids() == {first}
    assert str(stray) in (job.top / "cgroup.procs").read_text().split()


def test_a_directory_below_a_known_one(job):
    task = job.step("step_0/user/task_0")
    first = job.sleep(task)
    assert job.list.pids() == {first}
    second = job.sleep(job.step("step_0/user/task_0/more"))
    assert job.list.pids() == {first, second}


def test_more_than_a_page_of_numbers(job):
    batch = job.step("step_batch")
    many = "for i in $(seq 1000); do sleep 99 & done; echo; wait"
    first = job.sleep(batch, program=many)
    deadline = time.monotonic() + 20
    while len(job.list.pids()) != 1001:
        assert time.monotonic() < deadline, len(job.list.pids())
        time.sleep(0.1)
    found = job.list.pids()
    assert first in found
    for pid in found - {first}:
        os.kill(pid, signal.SIGKILL)


def test_files_are_kept_open_up_to_a_bound(job, monkeypatch):
    monkeypatch.setattr(job_list, "_MOST_OPEN", 2)
    job.list = JobList(str(job.top), version2=True)
    pids = {job.sleep(job.step(f"step_{number}")) for number in range(5)}
    before = len(os.listdir("/proc/self/fd"))
    assert job.list.pids() == pids
    assert len(os.listdir("/proc/self/fd")) == before + 3, (
        "two directories, and the list of the step"
    )
    job.list = None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_job_that_is_gone(job):
    batch = job.step("step_batch")
    first = job.sleep(batch)
    assert job.list.pids() == {first}
    job.kill(first)
    assert job.list.pids() == set()
    job.remove(job.top)
    with pytest.raises(FileNotFoundError):
        job.list.pids()


def test_who_was_not_waited_for_is_still_a_member(session):
    """Its counters go to its parent only then: see Rates."""
    one = session()
    census = Census(one.init, one.relay, one.uid, Processes(), old=0.0)
    before = set(census.members())
    one.run("child = subprocess.Popen(['sleep', '99'])")
    (ended,) = set(census.members()) - before
    one.run("child.kill(); time.sleep(0.3)")
    assert Path(f"/proc/{ended}/stat").read_text().rpartition(") ")[2][0] == "Z"
    assert ended in census.members()
    one.run("child.wait()")
    assert ended not in census.members()


def test_sessions_are_not_all_listed_in_the_same_pass(session):
    ones = [session() for _ in range(4)]
    censuses = [Census(one.init, one.relay, one.uid, Processes()) for one in ones]
    for census in censuses:
        census.members()
    waits = {round(census._patience, 3) for census in censuses}
    assert len(waits) > 1
    assert max(waits) <= 25.0
