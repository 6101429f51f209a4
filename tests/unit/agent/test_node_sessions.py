"""Sessions whose end nobody saw, and what is left of them on the node and in the store."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.store.records import SessionRecords
from slurm_reclaim.config.schema import Agent, Config
from slurm_reclaim.daemon.node_samples import NodeSamples
from slurm_reclaim.daemon.node_sessions import NodeSessions
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living


class Node:
    """An agent's sessions with one of them, 7, whose staging and other directories are there."""

    def __init__(self, folder: Path) -> None:
        self.config = replace(Config(), agent=Agent(state=folder, run=folder / "run"))
        self.records = SessionRecords(folder / "sessions")
        self.staged = folder / "store" / "7.2001.5" / ".staging-1"
        self.work = folder / "work" / "7.2001.5"
        self.tmp = folder / "tmp-7"
        for each in (self.staged, self.work, self.tmp):
            each.mkdir(parents=True)
            (each / "memory").touch()

    def session(self, pid: int, boot: str = "") -> NodeSession:
        return NodeSession(
            7, 2001, 2001, 1, "fresh", Living.RUNNING, init=pid, init_start=tree.start_time(pid),
            session="lab/7.2001.5", staged=str(self.staged), private_tmp=str(self.tmp),
            boot=boot or tree.boot_id(),
        )  # fmt: skip

    def started(self) -> NodeSessions:
        """By an agent that comes up now."""
        return NodeSessions(self.config, "n1", self.records, NodeSamples(lambda: self.config))

    def cleaned(self) -> bool:
        return not any(each.exists() for each in (self.staged, self.work, self.tmp))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def until(seen: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 5
    while not seen() and time.monotonic() < deadline:
        time.sleep(0.01)
    return seen()


async def test_of_a_job_that_ended_while_the_agent_was_away_nothing_is_left(node: Node) -> None:
    process = subprocess.Popen(["sleep", "60"])
    node.records.save(node.session(process.pid))
    process.kill()
    process.wait()
    sessions = node.started()
    assert sessions.sessions == {}
    assert until(node.cleaned)
    assert node.records.load() == []


async def test_of_one_that_ends_before_it_has_attached_nothing_is_left(node: Node) -> None:
    """Its reclaim-init was there when the agent came up, and never said a word."""
    process = subprocess.Popen(["sleep", "60"])
    node.records.save(node.session(process.pid))
    sessions = node.started()
    sessions.sweep()
    assert list(sessions.sessions) == [7]
    assert node.staged.exists()
    process.kill()
    process.wait()
    sessions.sweep()
    assert sessions.sessions == {}
    assert until(node.cleaned)


async def test_another_boot_has_other_processes(node: Node) -> None:
    """By chance a process of the same number may have started as many ticks after the boot."""
    node.records.save(node.session(os.getpid(), "another"))
    assert node.started().sessions == {}
    assert until(node.cleaned)


async def test_what_is_being_saved_is_let_alone(node: Node) -> None:
    """S1: whoever is at work commits it or discards it."""
    process = subprocess.Popen(["sleep", "60"])
    node.records.save(node.session(process.pid))
    sessions = node.started()
    sessions.busy.add(7)
    process.kill()
    process.wait()
    sessions.sweep()
    assert list(sessions.sessions) == [7]
    sessions.forget(sessions.sessions[7], "its link broke")
    await asyncio.sleep(0.1)
    assert node.staged.exists()
    assert node.work.exists()


async def test_a_late_word_of_the_last_run_leaves_the_next_alone(node: Node) -> None:
    process = subprocess.Popen(["sleep", "60"])
    node.records.save(node.session(process.pid))
    sessions = node.started()
    before = sessions.sessions[7]
    process.kill()
    process.wait()
    after = replace(node.session(os.getpid()), restarts=2, staged="")
    sessions.put(after, None)  # type: ignore[arg-type]
    assert until(lambda: not node.staged.exists())
    sessions.forget(before, "the job was requeued")
    await asyncio.sleep(0.1)
    assert sessions.sessions[7] is after
    assert node.tmp.exists(), "it is that of the run that is there now"
    assert node.work.exists()
    assert [each.restarts for each in node.records.load()] == [2]
