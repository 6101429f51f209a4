"""A frozen tree can be continued by its owner, or by Slurm: then its image is not what it is."""

import os
import signal
import subprocess
import time

import pytest

from slurm_reclaim.adapters.criu.tree import SessionTree
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.config.schema import Config
from slurm_reclaim.errors import DumpFailed
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living


@pytest.fixture
def frozen():
    """A tree of one process that sleeps; it is stopped."""
    session = NodeSession(7, 2001, 2001, 1, "fresh", Living.DUMPING, init=os.getpid())
    one = SessionTree(session, Config(), "n1", lambda pid: None, lambda: None, lambda: None)
    with subprocess.Popen(["sleep", "60"]) as child:
        one.child = child
        child.send_signal(signal.SIGSTOP)
        state(child, "T")
        one._frozen = [tree.read(child.pid)]
        yield one
        child.kill()


def state(child, wanted):
    deadline = time.monotonic() + 10
    while tree.read(child.pid).state not in wanted:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_stopped_is_what_was_saved(frozen):
    assert tree.continued(frozen._frozen) is None


def test_what_was_continued_is_not(frozen):
    frozen.child.send_signal(signal.SIGCONT)
    state(frozen.child, "SR")
    with pytest.raises(DumpFailed, match=r"sleep \(\d+\) was continued"):
        frozen.describe(None, None, "idle")


def test_what_has_ended_is_no_more_than_that(frozen):
    frozen.child.kill()
    state(frozen.child, "ZX")
    assert tree.continued(frozen._frozen) is None
    frozen.child.wait()
    assert tree.continued(frozen._frozen) is None
