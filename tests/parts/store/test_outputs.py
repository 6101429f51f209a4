"""The job's output file comes back as it was, with what was written since behind it."""

import os
from dataclasses import replace

import pytest

from slurm_reclaim.adapters.criu import program
from slurm_reclaim.adapters.criu.surroundings import Surroundings
from slurm_reclaim.config.schema import Agent
from slurm_reclaim.errors import RestoreFailed
from slurm_reclaim.model.checkpoint import OutputFile
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living
from tests.parts.store.test_contents import Shop
from tests.parts.store.world import ID

SAVED = b"".join(b"line %d of the notebook\n" % number for number in range(20_000))
NEWS = b"slurmstepd: something happened\n"


class Here(Surroundings):
    """In no namespace, as whoever runs the tests; `before` is what a shell does first."""

    before = ""

    def _as_owner(self, owner, words, timeout, stdin=None, stdout=None):
        if words[1:2] == ["-c"]:
            words = [words[0], "-c", self.before + words[2], *words[3:]]
        return program.finish(program.launch(words, (), stdin, stdout), timeout)


@pytest.fixture
def job(tmp_path):
    shop = Shop(tmp_path)
    shop.put(0, {"outputs-1": SAVED})
    path = tmp_path / "slurm-7.out"
    path.touch()
    opened = shop.store.open(ID, 0)
    opened.manifest = replace(
        opened.manifest, outputs=(OutputFile(str(path), "outputs-1", len(SAVED), (1,)),)
    )
    session = NodeSession(7, os.getuid(), os.getgid(), 0, "restore", Living.WAITING)
    session.relay = session.init = os.getpid()
    around = Here(session, Agent())
    around._output_path = lambda fd: str(path)
    around.path = path
    around.put = lambda: around.put_back_outputs(opened)
    yield around
    opened.close()


@pytest.mark.parametrize("since", [b"", NEWS], ids=["truncated", "written since"])
def test_what_is_not_there_any_more_comes_back(job, since):
    job.path.write_bytes(since)
    job.put()
    assert job.path.read_bytes() == SAVED + since


@pytest.mark.parametrize("since", [b"", NEWS], ids=["kept", "appended to"])
def test_what_is_there_is_left_alone(job, since):
    job.path.write_bytes(SAVED + since)
    inode, changed = job.path.stat().st_ino, job.path.stat().st_mtime_ns
    job.put()
    assert job.path.read_bytes() == SAVED + since
    assert (job.path.stat().st_ino, job.path.stat().st_mtime_ns) == (inode, changed)


def test_a_full_disk_is_no_reason_to_have_it_twice(job):
    """The owner makes room and tries again."""
    job.before = "ulimit -f 100; trap '' XFSZ; "
    with pytest.raises(RestoreFailed, match=r"slurm-7\.out"):
        job.put()
    assert 0 < job.path.stat().st_size < len(SAVED)
    job.before = ""
    job.put()
    assert job.path.read_bytes() == SAVED
