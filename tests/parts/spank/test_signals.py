# SPDX-License-Identifier: Apache-2.0
"""Signals reach the same processes as without us: the script alone, its process group, or all."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest
from conftest import UID, children, init_of, name_of, wait_until

# The script, a child in its process group, and one outside of it; each notes what it gets.
WATCH = """
watch() {
    for s in HUP INT QUIT USR1 USR2 TERM CONT TSTP ALRM WINCH RTMIN RTMAX; do
        trap "echo $1 $s" $s
    done
    echo $1 ready
    while :; do sleep 0.05; done
}
watch mate &
setsid bash -c "$(declare -f watch); watch loner" &
watch script
"""
CAUGHT = ["HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "TSTP", "ALRM", "WINCH"]


def start(bench, managed: bool):
    agent = bench.agent(mode="fresh" if managed else "ignore", last_pid=299)
    task = bench.script(WATCH)
    wait_until(lambda: task.text().count("ready") == 3)
    if managed:
        agent.attached(77)
        wait_until(lambda: "reclaim-witness" in map(name_of, children(task.pid)))
    return task


def heard(task) -> list[str]:
    """What was said besides "ready", once nothing more comes; on a busy machine the first word
    may take its time."""
    last, quiet, deadline = "", 0, time.monotonic() + 5
    while quiet < 4:
        time.sleep(0.2)
        now = task.text()
        last, quiet = now, quiet + 1 if now == last else 0
        if not _words(last) and time.monotonic() < deadline:
            quiet = 0
    return _words(last)


def _words(text: str) -> list[str]:
    return sorted(line for line in text.split("\n") if line and "ready" not in line)


def descendants(pid: int) -> list[int]:
    out = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        out += [int(child), *descendants(int(child))]
    return out


def to_step(task, number: int) -> None:
    """proctrack/linuxproc, or SignalChildrenProcesses=yes: one after the other, to all."""
    for pid in [task.pid, *descendants(task.pid)]:
        if Path(f"/proc/{pid}/comm").read_text() != "sleep\n":
            os.kill(pid, number)


@pytest.mark.parametrize("name", CAUGHT)
def test_to_the_task_process(bench, name):
    """scancel --batch, and proctrack/cgroup: time limit, requeue, suspend."""
    task = start(bench, managed=True)
    os.kill(task.pid, getattr(signal, f"SIG{name}"))
    assert heard(task) == [f"script {name}"]


@pytest.mark.parametrize("name", ["USR1", "TERM", "INT", "TSTP"])
def test_to_the_process_group(bench, name):
    """scancel --full. Background jobs of bash ignore SIGINT, so both runs are compared."""
    number = getattr(signal, f"SIG{name}")
    results = []
    for managed in (False, True):
        task = start(bench, managed)
        os.killpg(task.pid, number)
        results.append(heard(task))
        for pid in [*descendants(task.pid), task.pid]:
            with contextlib.suppress(ProcessLookupError):  # the naps are short
                os.kill(pid, signal.SIGKILL)
        task.status()
        bench.agents.pop().close()
    assert results[0] == results[1]
    # With a stopped nap in its foreground, bash does not get to its traps.
    assert name == "TSTP" or "script " + name in results[0]
    assert "loner " + name not in results[0]


@pytest.mark.parametrize("name", ["USR1", "TERM", "CONT"])
def test_to_every_process(bench, name):
    number = getattr(signal, f"SIG{name}")
    task = start(bench, managed=True)
    to_step(task, number)
    assert heard(task) == sorted(f"{who} {name}" for who in ("script", "mate", "loner"))


def test_one_kind_after_the_other(bench):
    """What was heard of one signal must not colour the next."""
    task = start(bench, managed=True)
    to_step(task, signal.SIGUSR1)
    assert len(heard(task)) == 3
    time.sleep(0.6)
    os.kill(task.pid, signal.SIGUSR1)
    assert heard(task).count("script USR1") == 2
    os.kill(task.pid, signal.SIGUSR2)
    assert "script USR2" in heard(task)
    assert "mate USR2" not in heard(task)


def test_realtime_signals(bench):
    task = start(bench, managed=True)
    os.kill(task.pid, signal.SIGRTMAX)
    assert heard(task) == ["script RTMAX"]


def test_untrapped_signal_ends_the_job_of_it(bench):
    bench.agent(mode="fresh", last_pid=299)
    task = bench.script("echo ready; sleep 60")
    task.has("ready")
    os.kill(task.pid, signal.SIGTERM)
    assert task.status() == signal.SIGTERM


def test_signal_at_the_very_start_is_not_lost(bench):
    """Before the relay's loop runs, signals wait."""
    bench.agent(mode="fresh", last_pid=299)
    for _ in range(5):
        task = bench.script("sleep 60")
        os.kill(task.pid, signal.SIGTERM)
        assert task.status() == signal.SIGTERM


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


@pytest.mark.parametrize("name", ["STOP", "TSTP"])
def test_stop_and_continue(bench, name):
    agent = bench.agent(mode="fresh", last_pid=299)
    task = bench.script("echo ready; sleep 60")
    task.has("ready")
    child = int(agent.attached(77)["child"])
    for _ in range(2):
        os.kill(task.pid, getattr(signal, f"SIG{name}"))
        wait_until(lambda: state(child) == "T", 5)
        os.kill(task.pid, signal.SIGCONT)
        wait_until(lambda: state(child) == "S", 5)


def test_the_owner_cannot_debug_the_relay(bench):
    agent = bench.agent(mode="fresh", last_pid=299)
    task = bench.script("sleep 60")
    agent.attached(77)
    assert os.stat(f"/proc/{task.pid}/mem").st_uid == 0
    status = Path(f"/proc/{task.pid}/status").read_text()
    assert re.search(rf"Uid:\t{UID}\t{UID}\t{UID}", status)
    assert os.stat(f"/proc/{init_of(task)}").st_uid == 0
