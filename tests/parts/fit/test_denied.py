"""C11: files that their owner alone may look at, as on a FUSE mount of the owner's: root is told
nothing of them, open as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_reclaim.adapters.criu.surroundings import Surroundings
from slurm_reclaim.adapters.proc import file_blockers, opened, tree
from slurm_reclaim.config.schema import Agent
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living

SQUASH = Path(__file__).parents[2] / "cluster/inside/squash.py"
UID = 65533
HOLD = """
import os, sys
place, uid = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
out = os.open(place + "/out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
kept = os.open(place + "/kept", os.O_RDWR | os.O_CREAT)
gone = os.open(place + "/gone", os.O_RDWR | os.O_CREAT)
os.unlink(place + "/gone")
say = os.dup(1)
os.dup2(out, 1)
os.dup2(out, 2)
os.write(say, b"there\\n")
sys.stdin.read()
"""


@pytest.fixture
def holder() -> Iterator[tuple[int, str]]:
    """PID of a process of another user, and the place where its files lie."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("needs root and FUSE")
    # pytest's own directories are closed to others.
    place = f"/var/tmp/reclaim-denied-{os.getpid()}"
    os.mkdir(place, 0o700)
    os.chown(place, UID, UID)
    try:
        subprocess.run([sys.executable, str(SQUASH), place, place, str(UID)], check=True)
        words = [sys.executable, "-c", HOLD, place, str(UID)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"there\n"
            yield process.pid, place
            process.communicate()
    finally:
        subprocess.run(["umount", "-l", place], check=False)
        for path in Path(place).iterdir():
            path.unlink()
        os.rmdir(place)


def test_they_are_left_to_their_owner_by_their_path(holder: tuple[int, str]) -> None:
    pid, place = holder
    seen = tree.read(pid)
    assert seen is not None
    there = [o for o in opened.files([seen]) if os.fsdecode(o.path).startswith(place)]
    assert {o.facts for o in there} == {None}
    paths = {os.path.basename(os.fsdecode(o.path)) for o in there if opened.has_a_path(o)}
    assert paths == {"out", "kept"}
    (found,) = file_blockers.find(there, ghost_limit=1 << 20, saved=[], mounted={})
    assert found.name == "deleted-file"
    assert f"{place}/gone, deleted where only its owner may look" in found.what


def test_a_jobs_output_there_is_followed(holder: tuple[int, str]) -> None:
    pid, place = holder
    record: Any = NodeSession(
        job_id=1, uid=UID, gid=UID, restarts=0, mode="fresh", living=Living.RUNNING,
        init=pid, init_start=0, relay=pid,
    )  # fmt: skip
    around = Surroundings(record, Agent())
    assert around.output_paths() == {f"{place}/out".encode()}
    assert around.output_bytes() == 0
    assert around.blockers() == []
