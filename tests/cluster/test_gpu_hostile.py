"""CUDA sessions that don't hold still, and jobs that are ended in the middle: the rest of the
session, other jobs and the node take no harm. The GPUs are simulated (tests/gpu)."""

from __future__ import annotations

import json

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.gpu_sessions import LOST, Begin, GpuSession, back, script
from tests.cluster.notebook import put
from tests.cluster.sessions import only
from tests.cluster.test_gpu_session import (  # noqa: F401
    begin,
    hibernating,
    impatient,
    in_background,
    settings,
)

pytestmark = pytest.mark.cluster
# CRIU, in the session's namespaces and as its user, and what it needs to begin late.
CRIU = """#!/bin/sh
case "$*" in *--leave-stopped*) touch /shared/home/alice/begin; sleep 3;; esac
exec /usr/sbin/criu "$@"
"""


@pytest.fixture
def hostile(gpu_lab: Lab, begin: Begin) -> Begin:  # noqa: F811
    put(gpu_lab, "gpu_hostile.py")

    def one(behaviour: str, options: str = "", *more: str) -> GpuSession:
        words = f"python3 /shared/inside/gpu_hostile.py {behaviour} --interval 0.2 --out $OUT"
        with only(gpu_lab, "n1"):
            return begin(*more, client=f"{words} {options}")

    return one


def test_one_that_becomes_another_program_costs_the_other_nothing(
    gpu_lab: Lab,
    begin: Begin,  # noqa: F811
) -> None:
    session = begin(client="--two --exec")
    node, before = session.node, session.computes()
    script(gpu_lab, node, "delay cuCheckpointProcessCheckpoint 4")
    done = hibernating(session)
    gpu_lab.wait("the lock", session.locked)
    first, other = sorted({each.pid for each in session.rounds()})
    found = gpu_lab.out(node, "pgrep", "-u", "alice", "-f", "two --exec").split()
    pids = {
        gpu_lab.out(node, "awk", "/^NSpid/ {print $NF}", f"/proc/{pid}/status"): pid
        for pid in found
    }
    gpu_lab.exec(node, "kill", "-USR1", pids[str(first)])
    gpu_lab.wait("the end of it", lambda: done, 60)
    script(gpu_lab, node)
    assert done[0].returncode == 41, done[0].stderr
    assert "not be given back" not in done[0].stderr
    assert session.now()["states"] == {str(other): "running"}
    seen = len([r for r in session.rounds() if r.pid == other])
    gpu_lab.wait("it", lambda: len([r for r in session.rounds() if r.pid == other]) > seen + 1)
    assert before.node == node
    session.reclaim("hibernate")
    session.wait_for_session("HIBERNATED")


def test_one_that_stops_itself_is_given_back(
    gpu_lab: Lab,
    hostile: Begin,
    impatient: None,  # noqa: F811
) -> None:
    session = hostile("stops")
    before = session.computes()
    script(gpu_lab, "n1", "delay cuCheckpointProcessCheckpoint 2")
    done = session.reclaim("hibernate", check=False)
    script(gpu_lab, "n1")
    assert done.returncode == 41, done.stderr
    session.runs_on(before)
    shown = session.reclaim("show", check=False).stdout
    assert "\x1b" not in done.stderr + shown


def test_one_that_begins_with_cuda_as_criu_starts_is_not_lost(
    gpu_lab: Lab,
    hostile: Begin,
) -> None:
    """CRIU itself would refuse its device files; here they are plain ones."""
    home = "/shared/home/alice"
    gpu_lab.exec("n1", "rm", "-f", f"{home}/begin")
    gpu_lab.exec("n1", "sh", "-c", f"mkdir -p {home}/devices; touch {home}/devices/nvidia0")
    gpu_lab.exec("n1", "chown", "-R", "alice", f"{home}/devices")
    gpu_lab.exec("n1", "sh", "-c", "cat >/opt/late-criu; chmod 755 /opt/late-criu", stdin=CRIU)
    with settings(gpu_lab, '[agent]\ncriu = "/opt/late-criu"\n'):
        devices = f"SIMULATED_GPU_DEVICES={home}/devices"
        session = hostile("begins", "--mib 8", f"--export=BEGIN={home}/begin,{devices}")
        done = session.reclaim("hibernate", check=False)
        assert done.returncode == 41, done.stderr
        assert "has begun to use CUDA meanwhile" in done.stderr
        session.runs_on(session.computes())


@pytest.mark.parametrize(
    ("verb", "how"), [("hibernate", "scancel"), ("restore", "scontrol requeue")]
)
def test_a_job_that_ends_with_its_gpu_in_our_hand(
    gpu_lab: Lab,
    begin: Begin,  # noqa: F811
    verb: str,
    how: str,
) -> None:
    with only(gpu_lab, "n1"):
        session = begin()
    if verb == "restore":
        session.reclaim("hibernate")
        session.wait_for_session("HIBERNATED")
    call = "Checkpoint" if verb == "hibernate" else "Restore"
    script(gpu_lab, "n1", f"slow cuCheckpointProcess{call} 3")
    with only(gpu_lab, "n1"):
        in_background(session, verb)
        wanted = {"locked"} if verb == "hibernate" else {"checkpointed"}
        gpu_lab.wait("the call", lambda: set(session.now("n1")["states"].values()) == wanted)
    gpu_lab.exec("ctl", *how.split(), str(session.job))
    gpu_lab.wait("its end", lambda: session.state not in ("RUNNING", "COMPLETING"))
    helper = ("pgrep", "-f", "driver_child")
    gpu_lab.wait("the helper's", lambda: not gpu_lab.exec("n1", *helper, check=False).stdout)
    assert not any(session.now("n1")["held"].values())
    assert set(gpu_lab.out("ctl", "sinfo", "-h", "-n", "n1", "-o", "%T").split()) <= {
        "idle",
        "mixed",
        "completing",
    }
    if how == "scancel":
        records = "/var/lib/slurm-reclaim/sessions"
        gpu_lab.wait("its record's", lambda: gpu_lab.out("n1", "ls", records) == "", 15)


def test_of_a_card_that_is_lost_nothing_is_known_and_nothing_is_touched(
    gpu_lab: Lab,
    begin: Begin,  # noqa: F811
) -> None:
    session = begin()
    before = session.computes()
    script(gpu_lab, before.node, card=before.uuid, more=LOST)
    gpu_lab.wait("it to be unknown", lambda: vote(session, "gpu") == "unknown", 60)
    done = session.reclaim("hibernate", check=False)
    assert done.returncode == 21, done.stderr
    assert "gpu is lost" in done.stderr
    assert (session.session()["state"], session.state) == ("ACTIVE", "RUNNING")
    back(gpu_lab, before.node)
    session.runs_on(before)
    session.reclaim("hibernate")
    session.wait_for_session("HIBERNATED")


@pytest.mark.parametrize("call", ["Lock", "Checkpoint"])
def test_a_card_that_is_lost_with_its_session_in_our_hand(
    gpu_lab: Lab,
    begin: Begin,  # noqa: F811
    call: str,
) -> None:
    """What has come to the host by then is saved, and comes back on another card. Else it is lost
    with the card, but not what its owner has in memory, nor what others have on the node's other
    card."""
    with only(gpu_lab, "n1"):
        session = begin()
        before = session.computes()
        script(gpu_lab, "n1", f"late cuCheckpointProcess{call} 3")
        done = hibernating(session)
        gpu_lab.wait("the call", lambda: session.states()[before.pid] == IN_HAND[call])
        script(gpu_lab, "n1", card=before.uuid, more=LOST)
        gpu_lab.wait("the end of it", lambda: done, 60)
        if call == "Lock":
            assert done[0].returncode == 41, done[0].stderr
            assert "could not be given back" in done[0].stderr
            assert (session.session()["state"], session.state) == ("ACTIVE", "RUNNING")
            assert session.output().count("started") == 1
            letters = gpu_lab.out("n1", "ps", "-o", "stat=", "-u", "alice").split()
            assert not any(letter.startswith("T") for letter in letters)
            again = session.reclaim("hibernate", check=False)
            assert again.returncode == 21
            assert "gpu-state" in again.stderr
            beside = begin()
            beside.reclaim("hibernate")
            beside.wait_for_session("HIBERNATED")
    back(gpu_lab, "n1")
    if call == "Checkpoint":
        session.wait_for_session("HIBERNATED")
        session.reclaim("restore")
        session.wait_for("RUNNING")
        assert session.computes().pid == before.pid


IN_HAND = {"Lock": "locked", "Checkpoint": "checkpointed"}


def vote(session: GpuSession, signal: str) -> str:
    done = session.lab.ask("explain", session.ref, "--json")
    votes = json.loads(done.stdout).get("votes", [])
    return next((each["vote"] for each in votes if each["signal"] == signal), "")
