"""GPU sessions judged by policy: a card at rest is given back though nobody asks for it, a card at
work or one that can't be read never is. The cards are simulated (tests/gpu)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.gpu_sessions import MIB, SPLIT, GpuSession, changed, script
from tests.cluster.policy import SHADOW, policy

pytestmark = pytest.mark.cluster

NODES = ("n1", "n2")
WINDOW, GRACE = 10, 10  # seconds
BUSY = ("wave gpu 60 0 0", "wave gpu 60 60 90")
ENCODES = ("wave encoder 60 0 0", "wave encoder 60 60 50")
# One or two samples of NVML's buffer in each window.
BURSTS = ("wave gpu 60 0 0", "wave gpu 8 0.2 100")


@pytest.fixture(scope="module")
def prod(gpu_lab: Lab) -> Iterator[None]:
    with policy(gpu_lab, window=f"{WINDOW}s", grace=f"{GRACE}s", more=SHADOW):
        yield


@pytest.fixture
def at_rest(gpu_lab: Lab, prod: None) -> Iterator[None]:
    for node in NODES:
        script(gpu_lab, node)
    yield
    for node in NODES:
        script(gpu_lab, node)


@pytest.fixture
def session(gpu_lab: Lab, at_rest: None) -> Iterator[GpuSession]:
    """Holds device memory and reads it back now and then, below every floor."""
    started = GpuSession.begin(gpu_lab, client="--interval 3")
    yield started
    started.cancel()
    gpu_lab.wait("the job's end", lambda: gpu_lab.out("ctl", "squeue", "-h") == "", 60)


def votes(session: GpuSession) -> dict[str, dict]:
    done = session.lab.ask("explain", session.ref, "--json")
    return {vote["signal"]: vote for vote in json.loads(done.stdout).get("votes", [])}


def test_a_card_at_rest_is_given_back_and_found_again(session: GpuSession) -> None:
    before = session.rounds()[-1]
    session.wait_for_session("WARNED", 90)
    assert {votes(session)[name]["vote"] for name in ("gpu", "gpu-memory")} == {"quiet"}
    session.wait_for_session("HIBERNATED", 60)
    assert session.event("checkpoint-committed")["details"]["freed_gpu"] == 16 * MIB
    assert set(session.now(before.node)["held"].values()) == {0}
    assert session.kinds().count("notice-delivered") == 1
    session.reclaim("restore")
    session.wait_for("RUNNING")
    assert session.computes().pid == before.pid


@pytest.mark.parametrize("use", [BUSY, ENCODES, BURSTS], ids=["sm", "encoder", "bursts"])
def test_a_card_at_work_takes_the_warning_back_and_is_left_alone(
    session: GpuSession, use: tuple[str, str]
) -> None:
    """C25, C26: nothing but the card says so."""
    session.wait_for_session("WARNED", 90)
    changed(session.lab, session.node, use)
    session.wait_for_session("ACTIVE", 30)
    assert session.event("activity-seen")["reason"].startswith("in use again: gpu")
    time.sleep(WINDOW + GRACE)
    assert session.session()["state"] == "ACTIVE"
    assert session.kinds().count("idle-confirmed") == 1
    script(session.lab, session.node)
    session.wait_for_session("WARNED", 60)


def test_a_card_that_can_not_be_read_is_not_idle(session: GpuSession) -> None:
    """C23: split after the warning, it says 0 or nothing for the whole."""
    session.wait_for_session("WARNED", 90)
    changed(session.lab, session.node, SPLIT)
    session.lab.wait("it to be unknown", lambda: votes(session)["gpu"]["vote"] == "unknown")
    assert "MIG" in votes(session)["gpu"]["what"]
    time.sleep(GRACE + WINDOW)
    assert "deadline-passed" not in session.kinds()
    assert session.state == "RUNNING"


def test_shadow_tells_the_memory_that_is_held(gpu_lab: Lab, at_rest: None) -> None:
    watched = GpuSession.begin(gpu_lab, "--job-name=watched", client="--interval 3", mib=48)
    try:
        gpu_lab.wait("the shadow event", lambda: "shadow" in watched.kinds(), 90)
        details = watched.event("shadow")["details"]
        assert details["action"] == "would_hibernate_session"
        assert details["vram_bytes"] == 48 * MIB
        assert watched.session()["state"] == "ACTIVE"
    finally:
        watched.cancel()
