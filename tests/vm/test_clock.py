"""Clocks that are set by hours, of a node, of the controller and of all: nothing comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.policy import policy
from tests.cluster.sessions import Counter

Start = Callable[..., Counter]
HOURS = 3
# Long enough that nothing is idle, told or over within the test but by a clock that was set.
SLOW = {"mode": "prod", "window": "30m", "grace": "30m"}
LOOK = 40.0
CONF = "/etc/slurm/slurm.conf"


def step(lab: Lab, hours: int, *nodes: str) -> None:
    for node in nodes:
        lab.exec(node, "date", "-s", f"{hours:+d} hours")


@pytest.fixture(scope="module")
def slow(lab: Lab) -> Iterator[None]:
    with patient_slurmctld(lab), policy(lab, **SLOW):
        yield


@contextmanager
def patient_slurmctld(lab: Lab) -> Iterator[None]:
    """With Slurm's own SlurmdTimeout: a node of another time can't be talked to, and when that is
    over Slurm takes it for lost and requeues its jobs itself (docs/safety.md)."""
    was = lab.out("ctl", "sed", "-n", "s/^SlurmdTimeout=//p", CONF)
    _slurmd_timeout(lab, "300")
    try:
        yield
    finally:
        _slurmd_timeout(lab, was)


def _slurmd_timeout(lab: Lab, seconds: str) -> None:
    lab.exec("ctl", "sed", "-i", f"s/^SlurmdTimeout=.*/SlurmdTimeout={seconds}/", CONF)
    lab.restart_daemon("ctl", "slurmctld")
    lab.wait("slurmctld", lambda: not lab.exec("ctl", "sinfo", check=False).returncode)


@pytest.fixture
def clocks(lab: Lab) -> Iterator[None]:
    """Right again afterwards, and Slurm well."""
    yield
    for node in ("n1", "n2", "ctl"):
        lab.exec(node, "date", "-s", f"@{time.time():.3f}")
    words = ["sinfo", "-hn", "n1", "-p", "main", "-o", "%T"]
    lab.wait("n1 well", lambda: lab.out("ctl", *words) in ("idle", "mixed"))


# Not slurmctld's forwards: by more than SlurmdTimeout it takes every node for lost, and requeues
# their jobs itself (docs/safety.md).
@pytest.mark.parametrize(
    ("hours", "nodes"),
    [(HOURS, ("n1",)), (-HOURS, ("n1",)), (-HOURS, ("ctl",)), (-HOURS, ("ctl", "n1", "n2"))],
    ids=["node forwards", "node backwards", "ctl backwards", "all backwards"],
)
def test_nothing_comes_of_it(
    lab: Lab, slow: None, counter: Start, clocks: None, nodes: tuple[str, ...], hours: int
) -> None:
    """MUNGE refuses what is five minutes off, so that one clock alone silences its host (S8)."""
    job, held = counter("-w", "n1"), counter("-w", "n1")
    held.reclaim("hibernate")
    before = job.counts_on()
    step(lab, hours, *nodes)
    # That nothing happens can't be waited for: some rounds of the loops.
    time.sleep(LOOK)
    assert job.counts_on().pid == before.pid
    assert (job.session()["state"], held.session()["state"]) == ("ACTIVE", "HIBERNATED")
    if "ctl" not in nodes:  # which, back again, would have jumped forwards
        step(lab, -hours, *nodes)
        job.wait_for_session("ACTIVE")
        held.wait_for_session("HIBERNATED")
    assert {event["kind"] for event in job.events()} <= {"adopted", "agent-silent", "agent-back"}
