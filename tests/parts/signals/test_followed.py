"""Who is asked for often is known by a file that is kept open."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.census import Member
from slurm_reclaim.adapters.proc.meters import TerminalMeter
from slurm_reclaim.adapters.proc.rates import _Counter
from tests.parts.signals.test_meters import census_of


@pytest.fixture
def child():
    one = subprocess.Popen(["sleep", "99"])
    yield one
    one.kill()
    one.wait()


def test_a_process_lives_until_somebody_has_waited_for_it(child):
    followed = tree.Followed(child.pid, tree.start_time(child.pid))
    assert followed.lives()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert followed.lives()
    child.wait()
    assert not followed.lives()


def test_another_of_the_same_number_is_not_it(child):
    assert not tree.Followed(child.pid, tree.start_time(child.pid) + 1).lives()
    assert not tree.Followed(0, 0).lives()


def test_it_is_asked_through_one_file(child):
    before = len(os.listdir("/proc/self/fd"))
    followed = tree.Followed(child.pid, tree.start_time(child.pid))
    assert [followed.lives() for _ in range(3)] == [True] * 3
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del followed
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_terminals_of_a_session_that_has_ended_are_unknown(session):
    """What is kept open outlives it."""
    one = session()
    one.run("end, other = pty.openpty()")
    meter = TerminalMeter(census_of(one), one.init)
    (reading,) = meter.read(0.0).values()
    assert reading.value == 1.0
    # nothing else tells: the list of its processes is not due for a new look
    meter._census._patience, meter._census._looked = 60.0, time.monotonic()
    one.end()
    (reading,) = meter.read(1.0).values()
    assert (reading.value, "can't be seen" in reading.what) == (None, True)


def test_a_number_that_another_process_got_is_read_of_that_one(child):
    counter = _Counter(Member(child.pid, True, 0, 0, ""), True)
    gone = subprocess.Popen(["sleep", "99"])
    counter.fd = os.open(f"/proc/{gone.pid}/io", os.O_RDONLY)
    gone.kill()
    gone.wait()
    assert counter.read("io").startswith(b"rchar: ")
