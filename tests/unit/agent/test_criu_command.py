"""CRIU's command lines: what must never be missing from them."""

import os
from pathlib import Path

import pytest
import sh

from slurm_reclaim.adapters.criu import command

ROOT = Path(__file__).parents[3]
LINES = [command.dump("criu", 300, 5, 1 << 20), command.restore("criu", 5, [(7, "/a.out")])]


@pytest.mark.parametrize("words", LINES, ids=["dump", "restore"])
def test_no_plugin_and_no_configuration_of_the_node_is_loaded(words: list[str]) -> None:
    """CRIU's plugin for CUDA would lock and restore by itself, and hide that it failed."""
    assert words[words.index("-L") + 1] == str(command.LIBEXEC)
    assert "--no-default-config" in words
    assert not {name for name in command.ENVIRONMENT if name.startswith("CRIU")}


def test_no_library_of_ours_lies_where_criu_looks_for_plugins() -> None:
    """It loads every *.so there."""
    makefile = (ROOT / "spank/Makefile").read_text()
    lines = [line for line in makefile.split("\n") if "LIBEXECDIR" in line or "libexec" in line]
    assert lines
    assert not [line for line in lines if ".so" in line]


def asleep() -> sh.RunningCommand:
    return sh.Command("sleep")("30", _bg=True, _bg_exc=False, _ok_code=list(range(-64, 256)))


def test_what_is_killed_for_its_time_is_told_from_what_somebody_else_killed() -> None:
    late = command.finish(asleep(), 0.05)
    assert (late.status, late.late) == (-9, True)
    running = asleep()
    running.kill()
    killed = command.finish(running, 30)
    assert (killed.status, killed.late) == (-9, False)


def test_what_is_late_is_asked_first_and_ends_by_itself() -> None:
    reading, writing = os.pipe()
    waits = sh.Command("sh")(
        "-c", "read line; exit 3", _in=reading, _bg=True, _bg_exc=False, _ok_code=[0, 3]
    )
    late = command.finish(waits, 0.05, lambda: os.close(writing), 60)
    os.close(reading)
    assert (late.status, late.late) == (3, True)


def test_what_does_not_end_when_it_is_asked_is_killed() -> None:
    asked: list[bool] = []
    late = command.finish(asleep(), 0.05, lambda: asked.append(True), 0.05)
    assert (late.status, late.late, asked) == (-9, True, [True])


def test_a_dump_is_not_ended_by_want_of_memory_or_a_broken_pipe() -> None:
    """It is a tracer; a restore must not be one: what comes back would inherit it."""
    assert "--tracer" in command.Entry(tracer=True).argv()
    assert "--tracer" not in command.Entry().argv()
