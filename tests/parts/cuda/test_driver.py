"""One action at a time through a child: what it takes, and what it does not take."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from slurm_reclaim.adapters.cuda import driver as module
from slurm_reclaim.adapters.cuda.driver import CallFailed, Driver, NoAnswer, NoWay
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.tree import Process
from tests.parts.cuda.conftest import Node, Session, uuid

Start = Callable[..., Session]


def client(session: Session) -> Process:
    return next(p for p in session.members() if "python" in p.name)


def through(node: Node, way: str, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """By cuda-bindings, or as on a node that has only the program."""
    if way == "program":
        monkeypatch.setattr(module.sys, "executable", "/usr/bin/python3")
    made = Driver(str(node.libraries / "cuda-checkpoint"), environment=node.environment)
    assert ("cuda-checkpoint" in made.way) == (way == "program"), made.way
    return made


@pytest.mark.parametrize("way", ["bindings", "program"])
def test_both_ways_do_the_same(
    start: Start, node: Node, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    session = start("--mib", "4")
    process = client(session)
    with through(node, way, monkeypatch) as driver:
        assert driver.has_state(process)
        assert not driver.has_state(tree.read(os.getpid()))  # type: ignore[arg-type]
        assert driver.state(process) == "running"
        driver.lock(process, 3.0)
        assert driver.state(process) == "locked"
        with pytest.raises(CallFailed, match="ILLEGAL_STATE"):
            driver.restore(process, 10.0)
        driver.checkpoint(process, 10.0)
        assert driver.state(process) == "checkpointed"
        node.open(1)
        with pytest.raises(CallFailed, match="INVALID_VALUE"):
            driver.restore(process, 10.0, [(uuid(0), uuid(0))])
        driver.restore(process, 10.0, [(uuid(0), uuid(1))])
        driver.unlock(process)
        assert driver.state(process) == "running"
    session.computes(on=uuid(1))


@pytest.mark.parametrize("way", ["bindings", "program"])
def test_a_thread_or_a_successor_is_not_touched(
    start: Start, node: Node, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    session = start()
    process = client(session)
    threads = [int(p.name) for p in (tree.PROC / str(process.pid) / "task").iterdir()]
    thread = next(number for number in threads if number != process.pid)
    with through(node, way, monkeypatch) as driver:
        with pytest.raises(CallFailed, match="THREAD"):
            driver.lock(replace(process, pid=thread), 1.0)
        with pytest.raises(CallFailed, match="GONE"):
            driver.lock(replace(process, start=process.start + 1), 1.0)
        assert driver.state(replace(process, start=process.start + 1)) == "gone"
        assert driver.state(process) == "running"


def test_a_node_with_neither_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "executable", "/usr/bin/python3")
    with pytest.raises(NoWay, match=r"cuda-bindings is not installed, and there is no program"):
        Driver("/nowhere/cuda-checkpoint")


def test_an_old_driver_says_so(node: Node) -> None:
    node.write("cuda 12060")
    with Driver("", environment=node.environment) as driver, pytest.raises(CallFailed):
        driver.state(tree.read(1))  # type: ignore[arg-type]


def test_a_driver_that_does_not_start_is_no_way(node: Node) -> None:
    node.write("error cuInit SYSTEM_NOT_READY")
    with pytest.raises(NoWay, match="cuInit: CUDA_ERROR_SYSTEM_NOT_READY") as caught:
        Driver("", environment=node.environment)
    assert not caught.value.missing


def test_a_child_that_dies_is_an_answer_that_did_not_come(start: Start, node: Node) -> None:
    session = start()
    notes: list[int] = []
    with Driver("", notes.append, node.environment) as driver:
        driver._child.kill()
        with pytest.raises(NoAnswer):
            driver.state(client(session))
    assert notes == [driver._child.pid, 0]
    assert session.states() == ["running"]


def test_its_environment_is_its_own(
    start: Start, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/somebody's")
    monkeypatch.setenv("PYTHONPATH", "/somebody's")
    with Driver("", environment=node.environment) as driver:
        seen = (tree.PROC / str(driver._child.pid) / "environ").read_bytes()
        assert b"somebody" not in seen
        # Of its own session: a signal to the agent's group must not end it within a call.
        assert tree.read(driver._child.pid) is not None
        assert driver._child.pid != threading.get_native_id()
