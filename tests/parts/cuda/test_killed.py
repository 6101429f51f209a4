"""An agent that dies between two calls of the driver: the next one gives back what it took."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.model.node_session import NodeSession
from tests.parts.cuda.conftest import Node, Session

AGENT = Path(__file__).with_name("killed.py")


def run(session: Session, path: Path, *point: str) -> NodeSession:
    """What the record says after its death."""
    path.write_bytes(msgspec.json.encode(session.record))
    node = session.node
    done = subprocess.run(
        [sys.executable, str(AGENT), str(path), str(node.folder), str(node.libraries), *point],
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    return msgspec.json.decode(path.read_bytes(), type=NodeSession)


@pytest.mark.parametrize("after", ["0", "1"])
@pytest.mark.parametrize("position", ["0", "1"])
@pytest.mark.parametrize("action", ["lock", "checkpoint"])
def test_the_next_agent_gives_all_back(
    start: Callable[..., Session], tmp_path: Path, action: str, position: str, after: str
) -> None:
    session = start("--two", processes=2)
    record = run(session, tmp_path / "record", action, position, after)
    assert len(record.gpu_taken) == 2
    # The child that it left does not go on by itself, and is waited for as CRIU is.
    _gone(record)
    before = session.states()
    assert (action, position, after) == ("lock", "0", "0") or before != ["running", "running"]
    session.record = record
    session.state().give_back(session.members())
    assert session.states() == ["running", "running"]
    assert record.gpu_taken == ()
    session.computes()


def test_a_call_under_way_comes_to_its_end_first(
    start: Callable[..., Session], node: Node, tmp_path: Path
) -> None:
    session = start()
    path = tmp_path / "record"
    path.write_bytes(msgspec.json.encode(session.record))
    words = [str(path), str(node.folder), str(node.libraries), "none", "0", "0"]
    node.write("late cuCheckpointProcessCheckpoint 2")
    agent = subprocess.Popen([sys.executable, str(AGENT), *words])
    deadline = time.monotonic() + 10
    while session.states() != ["checkpointed"] and time.monotonic() < deadline:
        time.sleep(0.05)
    agent.kill()
    agent.wait()
    record = msgspec.json.decode(path.read_bytes(), type=NodeSession)
    assert tree.same_process(record.worker, record.worker_start)
    _gone(record)
    session.record = record
    session.state().give_back(session.members())
    session.computes()


def _gone(record: NodeSession) -> None:
    deadline = time.monotonic() + 10
    while tree.same_process(record.worker, record.worker_start):
        assert time.monotonic() < deadline, "the child outlives its agent"
        time.sleep(0.05)
