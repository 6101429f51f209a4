"""What a restored session is shown of its allocation: by the relay's environment, to its owner."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_reclaim.adapters.proc import allocation

UID = 65533
FACTS = {"SLURM_JOB_GPUS": "1", "CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_NAME": "a b'\n\udcff"}


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[int]:
    """A process that looks like one from outside."""
    program = tmp_path / allocation.RELAY
    shutil.copy2("/bin/sleep", program)
    child = subprocess.Popen([program, "60"], env={"PATH": "/bin", "LANG": "C", **FACTS})
    yield child.pid
    child.kill()
    child.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another user need root")
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_its_owner_alone_can_read_it(tmp_path: Path, relay: int, umask: int) -> None:
    run = tmp_path / "run"
    run.mkdir()
    before = os.umask(umask)
    try:
        allocation.show(run, 7, UID, relay)
    finally:
        os.umask(before)
    path = run / "environment" / "7"
    seen = path.stat()
    assert (seen.st_uid, stat.S_IMODE(seen.st_mode)) == (UID, 0o400)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o711
    said = json.loads(path.read_bytes().decode("utf-8", "surrogateescape"))
    assert said == {"job": 7, "variables": FACTS}
    assert [p.name for p in path.parent.iterdir()] == ["7"]
    allocation.withdraw(run, 7)
    assert list(path.parent.iterdir()) == []


def test_who_is_no_relay_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmstepd's own environment is that of slurmd."""
    monkeypatch.setattr(allocation, "PATIENCE", 0.1)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=FACTS)
    try:
        assert allocation.variables(child.pid) == {}
        allocation.show(tmp_path, 7, os.getuid(), child.pid)
        assert list(tmp_path.iterdir()) == []
    finally:
        child.kill()
        child.communicate()
    assert allocation.variables(child.pid) == {}


def test_what_a_dead_agent_left_is_swept(tmp_path: Path) -> None:
    for job in (7, 8):
        allocation.publish(tmp_path, job, os.getuid(), {"SLURM_JOB_ID": str(job)})
    (tmp_path / "environment" / ".new-xyz").touch()
    allocation.sweep(tmp_path, {8})
    assert [p.name for p in (tmp_path / "environment").iterdir()] == ["8"]
    allocation.sweep(tmp_path / "nothing", {8})


def test_where_it_can_not_be_written_the_session_goes_on(tmp_path: Path, relay: int) -> None:
    (tmp_path / "environment").touch()
    allocation.show(tmp_path, 7, os.getuid(), relay)
    assert (tmp_path / "environment").read_bytes() == b""
