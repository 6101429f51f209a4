"""An agent that runs for months keeps no descriptor and no process of what went wrong."""

import os
import tempfile

import pytest

from slurm_reclaim.adapters.criu import command, program
from slurm_reclaim.adapters.criu.surroundings import Surroundings
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.config.schema import Agent
from slurm_reclaim.model.checkpoint import OutputFile
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living


def descriptors():
    return len(os.listdir("/proc/self/fd"))


class Relay:
    """What a manifest says of outputs: the second one is not there any more."""

    outputs = (OutputFile("/a", "outputs-1", 0, (1,)), OutputFile("/b", "outputs-2", 0, (987654,)))


def test_of_output_files_none_is_kept_where_one_is_gone():
    session = NodeSession(7, os.getuid(), os.getgid(), 0, "restore", Living.WAITING)
    session.relay = os.getpid()
    before = descriptors()
    for _ in range(3):
        with pytest.raises(OSError, match="descriptor 987654"):
            Surroundings(session, Agent()).inherit(Relay())
    assert descriptors() == before


@pytest.mark.parametrize("begin", [program.spawned, command.by_sh])
def test_a_program_that_can_not_be_watched_is_ended(monkeypatch, begin):
    """Where no descriptor is left: a CRIU that nobody holds would freeze what was just let go."""
    before = descriptors()
    with tempfile.NamedTemporaryFile("r") as told:

        def none_left(pid):
            while not told.read():
                told.seek(0)
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(tree, "pidfd", none_left)
        words = ["/bin/sh", "-c", f"echo $$ >{told.name}; exec sleep 60"]
        with pytest.raises(OSError, match="Too many"):
            program.launch(words, begin=begin)
        told.seek(0)
        pid = int(told.read())
    monkeypatch.undo()
    assert not os.path.exists(f"/proc/{pid}")
    assert descriptors() == before
