"""How programs are run, CRIU by sh and the others without: real ones, late, killed, talkative or
silent."""

import os
import signal
import tempfile
from collections.abc import Callable
from typing import BinaryIO

import pytest

from slurm_reclaim.adapters.criu import command, program
from slurm_reclaim.adapters.criu.program import Begin, Finished, Running, finish

Launch = Callable[..., Running]
Script = Callable[..., Finished]


@pytest.fixture(params=[program.spawned, command.by_sh], ids=["spawned", "by sh"])
def launch(request: pytest.FixtureRequest) -> Launch:
    begin: Begin = request.param
    return lambda *words, **more: program.launch(*words, **more, begin=begin)


def asleep(launch: Launch) -> Running:
    return launch(["/bin/sleep", "30"])


def test_what_is_killed_for_its_time_is_told_from_what_somebody_else_killed(launch: Launch) -> None:
    late = finish(asleep(launch), 0.05)
    assert (late.status, late.late) == (-9, True)
    running = asleep(launch)
    running.kill()
    killed = finish(running, 30)
    assert (killed.status, killed.late) == (-9, False)


def test_what_is_late_is_asked_first_and_ends_by_itself(launch: Launch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as asked:
        waits = launch(["/bin/sh", "-c", "read line; exit 3"], stdin=asked)
    late = finish(waits, 0.05, lambda: os.close(writing), 60)
    assert (late.status, late.late) == (3, True)


def test_what_does_not_end_when_it_is_asked_is_killed(launch: Launch) -> None:
    asked: list[bool] = []
    late = finish(asleep(launch), 0.05, lambda: asked.append(True), 0.05)
    assert (late.status, late.late, asked) == (-9, True, [True])


@pytest.fixture
def script(launch: Launch) -> Script:
    def run(text: str, **streams: BinaryIO) -> Finished:
        return finish(launch(["/bin/sh", "-c", text], **streams), 30)

    return run


def test_what_a_command_says_is_kept_with_its_status(script: Script) -> None:
    done = script("echo one; echo two >&2; exit 3")
    assert (done.status, done.output, done.late) == (3, "one\ntwo\n", False)


def test_what_ends_at_once_is_not_missed(script: Script) -> None:
    assert {script("exit 4").status for _ in range(30)} == {4}


def test_of_much_that_a_command_says_the_end_is_kept(script: Script) -> None:
    done = script("yes | head -c 1000000; echo; echo the end")
    assert done.ok
    assert done.output.endswith("the end\n")
    assert len(done.output) < 100_000


def test_a_child_that_holds_the_output_open_is_not_waited_for(
    script: Script,
) -> None:
    done = script("sleep 30 & echo $!")
    os.kill(int(done.output), signal.SIGKILL)
    assert done.ok


def test_streams_are_the_files_that_are_given(script: Script) -> None:
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as answered:
        asked.write(b"question")
        asked.seek(0)
        done = script("cat; echo complaint >&2", stdin=asked, stdout=answered)
        answered.seek(0)
        assert (answered.read(), done.output) == (b"question", "complaint\n")


def test_only_what_is_to_be_kept_is_given(launch: Launch, script: Script) -> None:
    reading, writing = os.pipe()
    try:
        held = launch(["/bin/sh", "-c", f"echo kept > /proc/self/fd/{writing}"], keep=(writing,))
        assert finish(held, 30).ok
        assert os.read(reading, 100) == b"kept\n"
        assert not script(f"echo kept > /proc/self/fd/{writing}").ok
    finally:
        os.close(reading)
        os.close(writing)
