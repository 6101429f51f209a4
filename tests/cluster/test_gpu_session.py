"""Sessions with GPU state: the card is given back, and found again elsewhere; and whatever the
driver does on the way, nobody loses anything. The GPUs are simulated (tests/gpu)."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.gpu_sessions import (
    FULL,
    LOST,
    MIB,
    OTHER_DRIVER,
    OTHER_MODEL,
    SPLIT,
    Begin,
    GpuSession,
    back,
    changed,
    script,
)
from tests.cluster.sessions import configured, only, processes

pytestmark = pytest.mark.cluster

NODES = ("n1", "n2")


@pytest.fixture
def begin(gpu_lab: Lab) -> Iterator[Begin]:
    started: list[GpuSession] = []

    def one(*options: str, **more: object) -> GpuSession:
        started.append(GpuSession.begin(gpu_lab, *options, **more))  # type: ignore[arg-type]
        return started[-1]

    for node in NODES:
        script(gpu_lab, node)
    yield one
    for node in NODES:
        script(gpu_lab, node)
    for each in started:
        gpu_lab.exec("ctl", "scancel", "-s", "KILL", str(each.job), check=False)
        each.cancel()
    gpu_lab.wait("the jobs' end", lambda: gpu_lab.out("ctl", "squeue", "-h") == "", 60)


@contextmanager
def settings(lab: Lab, text: str) -> Iterator[None]:
    """With this in the configuration of both agents."""
    first, second = (configured(lab, node, "reclaim-agent", text) for node in NODES)
    with first, second:
        yield


@pytest.fixture
def impatient(gpu_lab: Lab) -> Iterator[None]:
    with settings(gpu_lab, '[gpu]\nlock_timeout = "2s"\ncall_timeout = "4s"\n'):
        yield


def in_background(session: GpuSession, verb: str) -> list[subprocess.CompletedProcess[str]]:
    """What became of it, once it is over."""
    done: list[subprocess.CompletedProcess[str]] = []
    threading.Thread(
        target=lambda: done.append(session.reclaim(verb, check=False)), daemon=True
    ).start()
    return done


def hibernating(session: GpuSession) -> list[subprocess.CompletedProcess[str]]:
    return in_background(session, "hibernate")


def test_the_card_is_given_back_and_another_one_found_elsewhere(gpu_lab: Lab, begin: Begin) -> None:
    with only(gpu_lab, "n1"):
        session = begin(mib=48)
    before = session.computes()
    assert before.node == "n1"
    assert session.now()["held"][before.uuid] == 48 * MIB
    session.reclaim("hibernate")
    session.wait_for_session("HIBERNATED")
    assert set(session.now("n1")["held"].values()) == {0}
    assert session.now("n1")["states"] == {}
    committed = session.event("checkpoint-committed")
    assert committed["details"]["freed_gpu"] == 48 * MIB
    assert "48.0 MiB" in committed["reason"]
    with only(gpu_lab, "n2"):
        session.reclaim("restore")
        session.wait_for("RUNNING")
        after = session.computes()
    assert (after.node, after.pid) == ("n2", before.pid)
    assert after.uuid != before.uuid
    assert after.count > before.count
    assert session.output().count("started") == 1
    assert session.now()["held"][after.uuid] == 48 * MIB
    assert set(session.now()["states"].values()) == {"running"}


def test_all_cards_and_two_processes_come_back_and_go_again(gpu_lab: Lab, begin: Begin) -> None:
    with only(gpu_lab, "n1"):
        session = begin(client="--two", gpu="2")
    before = session.computes()
    assert len(session.now()["states"]) == 2
    for node in ("n2", "n1"):
        session.reclaim("hibernate")
        session.wait_for_session("HIBERNATED")
        with only(gpu_lab, node):
            session.reclaim("restore")
            session.wait_for("RUNNING")
            assert session.computes().node == node
    assert {r.uuid for r in session.rounds()[-4:]} == set(session.now()["held"])
    assert session.computes().pid in {r.pid for r in session.rounds()}
    assert before.node == "n1"


def test_what_can_not_be_saved_is_refused_by_name(gpu_lab: Lab, begin: Begin) -> None:
    session = begin(client="--fork-child")
    before = session.rounds()[-1]
    done = session.reclaim("hibernate", check=False)
    assert done.returncode == 21, done.stderr
    assert "gpu-fork" in done.stderr
    assert session.lab.wait("rounds", lambda: session.rounds()[-1].count > before.count)


# What `reclaim` ends with: 21 where nothing had been touched yet.
CALLS = {
    "cuInit": 21,
    "cuCheckpointProcessGetRestoreThreadId": 21,
    "cuCheckpointProcessGetState": 21,
    "cuCheckpointProcessLock": 41,
    "cuCheckpointProcessCheckpoint": 41,
}
FAULTS = [
    *(f"error {call} OPERATING_SYSTEM" for call in CALLS),
    # Not cuInit: the start of a driver may take long.
    *(f"delay {call} 1000" for call in CALLS if call != "cuInit"),
    # Done in the process, and not said in time.
    "late cuCheckpointProcessCheckpoint 6",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_the_driver_says_the_session_runs_on(
    gpu_lab: Lab, begin: Begin, impatient: None, fault: str
) -> None:
    call = fault.split()[1]
    session = begin()
    before = session.computes()
    script(gpu_lab, before.node, fault)
    done = session.reclaim("hibernate", check=False)
    script(gpu_lab, before.node)
    assert done.returncode == CALLS[call], (done.returncode, done.stderr)
    session.runs_on(before)
    assert session.session()["state"] == "ACTIVE"
    session.reclaim("hibernate")
    session.wait_for_session("HIBERNATED")


def test_its_owner_wins_while_the_gpu_is_copied(gpu_lab: Lab, begin: Begin) -> None:
    session = begin()
    before = session.computes()
    script(gpu_lab, before.node, "delay cuCheckpointProcessCheckpoint 6")
    done = hibernating(session)
    gpu_lab.wait("the lock", session.locked)
    session.reclaim("keep")
    gpu_lab.wait("the end of it", lambda: done)
    assert done[0].returncode == 44, done[0].stderr
    script(gpu_lab, before.node)
    session.runs_on(before)


def test_a_state_that_can_not_be_given_back_is_saved_instead(gpu_lab: Lab, begin: Begin) -> None:
    session = begin()
    before = session.computes()
    lines = ("delay cuCheckpointProcessCheckpoint 6", "error cuCheckpointProcessRestore UNKNOWN")
    script(gpu_lab, before.node, *lines)
    done = hibernating(session)
    gpu_lab.wait("the lock", session.locked)
    session.reclaim("keep")
    # Kept by its owner it is restored in place, which fails with the same driver: held again.
    session.wait_for_session("HIBERNATED", 90)
    gpu_lab.wait("the end of it", lambda: done, 60)
    assert "could not be given back" in session.event("checkpoint-committed")["reason"]
    script(gpu_lab, before.node)
    session.reclaim("restore")
    session.wait_for("RUNNING")
    assert session.computes().pid == before.pid
    assert session.output().count("started") == 1


def test_what_could_not_be_given_back_is_tried_again(gpu_lab: Lab, begin: Begin) -> None:
    session = begin()
    before = session.computes()
    pid = gpu_lab.out(before.node, "pgrep", "-u", "alice", "-f", "mib 16").split()[-1]
    taken = "error cuCheckpointProcessRestore UNKNOWN"
    script(gpu_lab, before.node, taken, card=before.uuid, more=f"process {pid} 1000")
    done = session.reclaim("hibernate", check=False)
    assert done.returncode == 41, done.stderr
    assert "NVML still shows PID" in done.stderr
    assert "could not be given back" in done.stderr
    assert session.state == "RUNNING"
    done = session.reclaim("hibernate", check=False)
    assert done.returncode == 21
    assert "gpu-state" in done.stderr
    assert "gpu-stopped" not in done.stderr
    script(gpu_lab, before.node)
    session.reclaim("hibernate")
    session.wait_for_session("HIBERNATED")
    session.reclaim("restore")
    session.wait_for("RUNNING")
    assert session.computes().pid == before.pid


@pytest.mark.parametrize("call", ["Restore", "Unlock"])
def test_a_restore_that_fails_there_is_done_elsewhere(
    gpu_lab: Lab, begin: Begin, call: str
) -> None:
    with only(gpu_lab, "n1"):
        session = begin()
    before = session.computes()
    session.reclaim("hibernate")
    session.wait_for_session("HIBERNATED")
    script(gpu_lab, "n2", f"error cuCheckpointProcess{call} OUT_OF_MEMORY")
    with only(gpu_lab, "n2"):
        done = session.reclaim("restore", check=False)
        gpu_lab.wait("the failure", lambda: "restore-failed" in session.kinds(), 60)
    assert "out of memory" in session.event("restore-failed")["reason"], done.stderr
    session.wait_for_session("HIBERNATED")
    assert session.now("n2")["states"] == {}
    assert session.now("n2")["held"].keys()
    assert not any(session.now("n2")["held"].values())
    session.reclaim("restore")
    session.wait_for("RUNNING")
    after = session.computes()
    assert (after.node, after.pid) == ("n1", before.pid)
    assert session.output().count("started") == 1


UNLIKE = {
    "another driver, split, full": (
        (OTHER_DRIVER, SPLIT, FULL),
        (
            "its NVIDIA driver is 590.44.01",
            "is split by MIG",
            "of memory free, the checkpoint needs",
        ),
    ),
    "another model": ((OTHER_MODEL,), ("the job was given 1 x Another GPU, the checkpoint needs",)),
    "lost": ((("name Sim", f"{LOST}\nname Sim"),), ("gpu is lost",)),
}


def both_report(lab: Lab) -> bool:
    """To a reclaimd that was started just now."""
    said = lab.exec("ctl", "reclaim", "check", check=False).stdout
    return re.search(r"agent on every node +2 report", said) is not None


@pytest.mark.parametrize("what", UNLIKE)
def test_cards_unlike_the_checkpoints_are_seen_before_anything_starts(
    gpu_lab: Lab, begin: Begin, what: str
) -> None:
    """They were as the controller knows them until a moment ago. Held again with every reason, and
    restored where it fits."""
    changes, reasons = UNLIKE[what]
    with only(gpu_lab, "n1"):
        session = begin()
    before = session.computes()
    session.reclaim("hibernate")
    session.wait_for_session("HIBERNATED")
    with configured(gpu_lab, "ctl", "reclaimd", '[agent]\nsilent_after = "60s"\n'):
        back(gpu_lab, "n2")  # where no session was since then NVML is looked at now and then only
        gpu_lab.wait("both agents", lambda: both_report(gpu_lab))
        agent = gpu_lab.out("n2", "pgrep", "-o", "-f", "reclaim-agent")
        try:
            with only(gpu_lab, "n2"):
                gpu_lab.exec("n2", "kill", "-STOP", agent)  # before it can tell of them
                changed(gpu_lab, "n2", *changes)
                session.reclaim("restore", "--no-wait")
                session.wait_for("RUNNING")
                gpu_lab.exec("n2", "kill", "-CONT", agent)
                gpu_lab.wait("the failure", lambda: "restore-failed" in session.kinds(), 60)
        finally:
            gpu_lab.exec("n2", "kill", "-CONT", agent)
            back(gpu_lab, "n2")
    said = session.event("restore-failed")["reason"]
    assert [reason for reason in reasons if reason not in said] == [], said
    shown = session.wait_for_session("HIBERNATED")
    assert shown["checkpoint"]["restarts"] == 0
    assert processes(gpu_lab, "n2") == []
    session.reclaim("restore")
    session.wait_for("RUNNING")
    after = session.computes()
    assert (after.node, after.pid) == ("n1", before.pid)
    assert session.output().count("started") == 1


@pytest.mark.parametrize("call", ["Lock", "Checkpoint"])
def test_an_agent_killed_with_the_gpu_in_hand(gpu_lab: Lab, begin: Begin, call: str) -> None:
    session = begin()
    before = session.computes()
    script(gpu_lab, before.node, f"late cuCheckpointProcess{call} 5")
    hibernating(session)
    gpu_lab.wait("the lock", session.locked)
    # Without the controller nobody tells the next agent what to do.
    gpu_lab.stop_daemon("ctl", "reclaimd")
    try:
        gpu_lab.stop_daemon(before.node, "reclaim-agent", kill=True)
        script(gpu_lab, before.node)
        assert session.locked()
        gpu_lab.start_daemon(before.node, "reclaim-agent")
        gpu_lab.wait("recovery", lambda: not session.locked(), 60)
        session.runs_on(before)
    finally:
        gpu_lab.start_daemon("ctl", "reclaimd")
    # Which then repeats its order.
    session.wait_for_session("HIBERNATED")
    session.reclaim("restore")
    session.wait_for("RUNNING")
    assert session.computes().pid == before.pid


def test_an_agent_killed_while_the_gpu_comes_back(gpu_lab: Lab, begin: Begin) -> None:
    with only(gpu_lab, "n1"):
        session = begin()
    before = session.computes()
    session.reclaim("hibernate")
    session.wait_for_session("HIBERNATED")
    script(gpu_lab, "n2", "delay cuCheckpointProcessRestore 8")
    with only(gpu_lab, "n2"):
        in_background(session, "restore")
        gpu_lab.wait("CRIU's end", lambda: "checkpointed" in session.now("n2")["states"].values())
        gpu_lab.stop_daemon("n2", "reclaim-agent", kill=True)
        script(gpu_lab, "n2")
        gpu_lab.start_daemon("n2", "reclaim-agent")
        gpu_lab.wait("the end of it", lambda: "agent-recovered" in session.kinds(), 60)
    # The child that it left was within the call, and came to its end: but nobody unlocked.
    assert (
        session.event("agent-recovered")["reason"] == "the agent was restarted during the restore"
    )
    session.wait_for_session("HIBERNATED")
    session.reclaim("restore")
    session.wait_for("RUNNING")
    assert session.computes().pid == before.pid
    assert session.output().count("started") == 1


PIECES = "python3 /shared/inside/gpu_pieces.py $OUT 15 20"


def limits(session: GpuSession) -> list[int]:
    """Of its job and all below it."""
    names = "( -name memory.limit_in_bytes -o -name memory.max )"
    line = f"find /sys/fs/cgroup {names} -path '*/job_{session.job}/*' | sort | xargs cat"
    line = line.replace("(", "\\(").replace(")", "\\)")
    found = session.lab.out(session.node, "sh", "-c", line).split()
    limited = [int(text) for text in found if text != "max"]
    assert limited, found
    return limited


def test_a_limit_that_is_too_low_is_raised_where_the_site_allows_it(
    gpu_lab: Lab, begin: Begin
) -> None:
    with only(gpu_lab, "n1"):
        session = begin("--mem=220M", client=PIECES)
    before, given = session.computes(), limits(session)
    done = session.reclaim("hibernate", check=False)
    assert done.returncode == 21
    assert "memory-headroom" in done.stderr
    with settings(gpu_lab, "[gpu]\nraise_memory = true\n"):
        script(gpu_lab, "n1", "error cuCheckpointProcessCheckpoint UNKNOWN")
        assert session.reclaim("hibernate", check=False).returncode == 41
        script(gpu_lab, "n1")
        session.runs_on(before)
        assert limits(session) == given
        session.reclaim("hibernate")
        session.wait_for_session("HIBERNATED")
        with only(gpu_lab, "n2"):
            session.reclaim("restore")
            session.wait_for("RUNNING")
            assert session.computes().pid == before.pid
        gpu_lab.wait("the limit as it was", lambda: limits(session) == given)
