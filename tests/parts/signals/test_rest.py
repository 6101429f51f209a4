"""A job in which nothing runs is left alone by the meters, until something does."""

from __future__ import annotations

import os
import time

import pytest

from slurm_reclaim.adapters.proc import census as of_session
from slurm_reclaim.adapters.proc import meters
from slurm_reclaim.adapters.proc.census import Census, Processes
from slurm_reclaim.adapters.proc.connections import Connections
from slurm_reclaim.adapters.proc.job_list import JobList
from slurm_reclaim.adapters.proc.meters import CpuMeter, IoMeter, NetworkMeter, TerminalMeter

OPENED = "end, other = pty.openpty()"
TYPED = "os.write(end, b'x\\n'); os.read(other, 9)"
WRITES = "file = open('/dev/null', 'wb', 0); file.write(bytes(4 << 20))"
CHILD = f"""
code = {WRITES + "; print(flush=True); input()"!r}
it = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
it.stdout.readline()
"""


@pytest.fixture
def lists(monkeypatch):
    """How often the job's processes were listed, which is done anew for whoever asks."""
    made, real = [], JobList.pids
    monkeypatch.setattr(JobList, "pids", lambda jobs: made.append(1) or real(jobs))
    return made


class Watched:
    """A session and its meters; read as the agent does, each after the other."""

    def __init__(self, one, lists):
        self.one, self.lists = one, lists
        self.census = Census(one.init, one.relay, one.uid, Processes(), old=0.0)
        if not self.census.clock.counts:
            pytest.skip("no cgroup counts CPU time")
        self.meters = [
            CpuMeter(self.census),
            IoMeter(self.census),
            NetworkMeter(self.census, one.init, one.uid, Connections()),
            TerminalMeter(self.census, one.init),
        ]
        self.at = time.monotonic()
        self.read()

    def read(self):
        now = time.monotonic()
        seconds, self.at = now - self.at, now
        time.sleep(0.02)  # the question whether anything ran is asked anew
        readings = {}
        for meter in self.meters:
            readings.update(meter.read(seconds))
        return {name: reading.value for name, reading in readings.items()}

    def rest(self):
        """Until nobody looks any more."""
        deadline = time.monotonic() + 30
        seen = -1
        while seen != len(self.lists):
            assert time.monotonic() < deadline, "the meters never rest"
            seen = len(self.lists)
            self.read()
            time.sleep(0.5)
            self.read()


@pytest.fixture
def watched(session, lists, monkeypatch):
    monkeypatch.setattr(meters, "_SETTLED", 0.3)
    monkeypatch.setattr(of_session, "FRESH", 0.2)
    monkeypatch.setattr(of_session, "_AT_ONCE", 0.01)
    one = session()
    one.run(OPENED)
    found = Watched(one, lists)
    found.rest()
    return found


def test_nobody_looks_at_who_does_not_run(watched, monkeypatch):
    opened, real = [], os.open
    monkeypatch.setattr(os, "open", lambda at, *a, **k: opened.append(at) or real(at, *a, **k))
    before = len(watched.lists)
    assert before
    for _ in range(3):
        assert watched.read() == {"cpu": 0.0, "io": 0.0, "network": 0.0, "terminal": 0.0}
    assert (len(watched.lists), opened) == (before, [])


def test_a_process_that_writes_is_seen_at_once(watched):
    watched.one.run(WRITES)
    assert watched.read()["io"] > 1 << 20


def test_a_new_process_is_seen_at_once(watched):
    watched.one.run(CHILD)
    assert watched.read()["io"] > 1 << 20


def test_input_is_seen_at_once(watched, monkeypatch):
    # the kernel keeps the time of input to 8 s: set to a time of long ago, any of now is another
    path = f"/proc/{watched.one.init}/root/dev/pts/0"
    os.utime(path, (1.0, 1.0))
    watched.one.run("pass")
    watched.rest()
    watched.one.run(TYPED)
    assert watched.read()["terminal"] == 1.0
    watched.rest()
    assert watched.read()["terminal"] == 0.0


def test_another_step_is_seen_at_once(watched):
    other = watched.one.start("step_0")
    try:
        watched.one.run(WRITES, other)
        assert watched.read()["io"] > 1 << 20
    finally:
        watched.one.end(other)
