"""Terminals: input counts, output and what we write do not (C35)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from slurm_reclaim.adapters.proc import steps, terminals
from slurm_reclaim.adapters.proc.meters import TerminalMeter
from slurm_reclaim.model.sample import Signal
from tests.parts.signals.test_meters import census_of

# A terminal with a program that reads lines, as a shell does.
OPEN = """
master, slave = pty.openpty()
reader = subprocess.Popen(["cat"], stdin=slave, stdout=subprocess.DEVNULL)
"""


def age(*paths):
    """The kernel notes input once in 8 seconds: as if the last was long ago."""
    for path in paths:
        facts = os.stat(path)
        os.utime(path, (facts.st_atime - 100, facts.st_mtime))


def slaves(one):
    base = Path(f"/proc/{one.init}/root/dev/pts")
    return [path for path in base.iterdir() if path.name.isdigit()]


def meter_of(one):
    meter = TerminalMeter(census_of(one), one.init)
    meter.read(0.0)
    return lambda: meter.read(1.0)[Signal.TERMINAL.value]


def test_nobody_can_type_where_there_is_no_terminal(session):
    read = meter_of(session())
    reading = read()
    assert (reading.value, reading.what) == (0.0, "no terminal")


def test_a_terminal_that_is_opened_counts(session):
    one = session()
    read = meter_of(one)
    one.run(OPEN)
    assert read().value == 1.0
    assert read().value == 0.0


def test_input_counts_and_output_does_not(session):
    one = session()
    one.run(OPEN)
    age(*slaves(one))
    read = meter_of(one)
    one.run("for _ in range(50): os.write(slave, b'output\\n')\nos.read(master, 1000)")
    for path in slaves(one):
        with open(path, "w") as ours:
            ours.write("our own warning\n")
    before = read()
    assert before.value == 0.0
    one.run("os.write(master, b'typed\\n')")
    time.sleep(0.3)
    after = read()
    assert after.value == 1.0
    assert "pts/" in after.what
    assert after.last > before.last
    assert abs(after.last - time.time()) < 2


def test_a_terminal_of_another_step_counts(session):
    """An adopted login, srun --pty: the terminal is the node's own."""
    one = session()
    step = one.start("step_extern")
    read = meter_of(one)
    try:
        assert read().what == "no terminal"
        one.run("pid, master = pty.fork()\nif not pid: os.execvp('cat', ['cat'])", step)
        time.sleep(0.5)
        reading = read()
        assert reading.value == 1.0
        assert reading.what.startswith("input on login on pts/")
        name = reading.what.rpartition("/")[2]
        age(f"/dev/pts/{name}")
        read()
        assert read().value == 0.0
        one.run("os.write(master, b'typed\\n')", step)
        time.sleep(0.3)
        assert read().value == 1.0
    finally:
        one.end(step)


def test_terminals_that_can_not_be_seen_are_unknown(session):
    one = session()
    read = meter_of(one)
    one.end()
    assert read().value is None


def test_input_that_no_program_has_read_is_found(session):
    one = session()
    one.run("master, slave = pty.openpty()\nother, end = pty.openpty()")
    assert terminals.unread(one.init) == []
    one.run("os.write(other, b'typed ahead\\n')\ntime.sleep(0.3)")
    assert terminals.unread(one.init) == ["pts/1"]
    one.run("os.read(end, 100)")
    assert terminals.unread(one.init) == []


def test_a_terminal_that_nobody_has_open_is_not_hung_up_by_looking(session):
    one = session()
    one.run(
        "import fcntl\n"
        "master = os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)\n"
        "fcntl.ioctl(master, 0x40045431, bytes(4))"  # TIOCSPTLCK: unlock it
    )
    assert terminals.unread(one.init) == []
    one.run("try:\n os.read(master, 1)\nexcept BlockingIOError:\n pass")


@pytest.mark.parametrize(
    ("typed", "since", "seen"),
    [
        (1000.0, 999.9, True),
        (1000.0, 1000.7, True),  # whole seconds: 1000 may be 1000.9
        (1000.0, 1005.0, True),  # and 1000 may stand for 1006, in the same 8 seconds
        (1000.0, 1008.0, False),
        (1007.0, 1008.0, False),
        (0.0, 5000.0, False),
    ],
)
def test_input_since(monkeypatch, typed, since, seen):
    monkeypatch.setattr(terminals, "of_session", lambda init: {"pts/0": typed} if typed else {})
    assert terminals.input_since(since, 1) == (["pts/0"] if seen else [])


def test_input_in_the_same_second_is_not_missed(session):
    one = session()
    one.run(OPEN)
    age(*slaves(one))
    since = time.time()
    assert terminals.input_since(since, one.init) == []
    one.run("os.write(master, b'typed\\n')")
    time.sleep(0.2)
    assert terminals.input_since(since, one.init) == ["pts/0"]


def test_input_of_a_login_is_not_missed(session):
    one = session()
    step = one.start("step_extern")
    try:
        one.run("pid, master = pty.fork()\nif not pid: os.execvp('cat', ['cat'])", step)
        time.sleep(0.5)
        (device,) = steps.terminals(one.relay, one.init)
        assert terminals.input_since(time.time() - 60, one.init, [device]) != []
        assert terminals.input_since(time.time() + 60, one.init, [device]) == []
    finally:
        one.end(step)
