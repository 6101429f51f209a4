"""Notices on real terminals in a devpts of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_reclaim.adapters.proc import terminals, tree, wall

PROGRAM = Path(__file__).with_name("in_namespaces.py")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces, which needs root")


class World:
    """`init` is the PID of the first process in there."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", sys.executable, str(PROGRAM),
             *kinds],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout.readline() == "ready\n"
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.init = int(children.read_text().split()[0])

    def ask(self, command: str) -> list:
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def world():
    made = []

    def make(*kinds: str) -> World:
        made.append(World(kinds))
        return made[-1]

    yield make
    for one in made:
        one.end()


def test_every_terminal_gets_the_text(world):
    there = world("open", "raw", "open")
    assert wall.write(there.init, "\nsoon\n\n") == 3
    assert there.ask("read") == [
        "\r\r\nsoon\r\r\n\r\r\n",
        "\r\nsoon\r\n\r\n",
        "\r\r\nsoon\r\r\n\r\r\n",
    ]


def test_stopped_full_and_hung_up_ones_have_not_taken_it(world):
    there = world("stopped", "full", "hungup", "open")
    begin = time.monotonic()
    assert wall.write(there.init, "soon\n") == 1
    assert time.monotonic() - begin < wall.AT_MOST
    said = there.ask("read")
    assert said[0] == ""
    assert "soon" not in said[1]
    assert said[3] == "soon\r\r\n"


def test_nobodys_terminal_is_not_opened(world):
    """To open and close the only user's end would be a hang-up to the program at the other."""
    there = world("untouched", "orphan")
    assert wall.write(there.init, "soon\n") == 0
    assert there.ask("read") == ["", "EIO"]  # the orphan's slave was closed by its maker


def test_writing_is_no_input(world):
    there = world("open")
    os.utime(f"/proc/{there.init}/root/dev/pts/0", (1000.0, 1000.0))
    assert wall.write(there.init, "soon\n") == 1
    there.ask("read")
    (atime, mtime) = there.ask("times")[0]
    assert atime == 1000.0 == terminals.of_session(there.init)["pts/0"]
    assert mtime > 1000.0, "the write was seen by the kernel"


def test_control_characters_do_not_reach_a_terminal(world):
    there = world("raw")
    assert wall.write(there.init, "a\x1b]0;x\x07b\x9b2Jc\x05\rd\u202ee\udcfff\ng\th\n") == 1
    assert there.ask("read") == ["a?]0;x?b?2Jc?d?e?f\r\ng       h\r\n"]


def test_a_long_text_is_cut(world):
    there = world("raw")
    assert wall.write(there.init, "x" * 100_000) == 1
    assert len(there.ask("read")[0]) == wall.MOST_TEXT


def test_the_nodes_own_terminals_are_never_written_to():
    master, slave = os.openpty()
    try:
        # A process without a devpts of its own.
        assert wall.write(os.getpid(), "soon\n") == 0
        os.set_blocking(master, False)
        with pytest.raises(BlockingIOError):
            os.read(master, 100)
    finally:
        os.close(master)
        os.close(slave)


def test_a_session_that_is_gone_has_no_terminal():
    assert wall.write(2**22 - 1, "soon\n") == 0
    assert tree.members(2**22 - 1) == []
