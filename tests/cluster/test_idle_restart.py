"""The idle clock while daemons die: it does not begin anew, and is not trusted blindly either."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.policy import policy
from tests.cluster.sessions import Counter

pytestmark = pytest.mark.cluster
WINDOW = 100  # seconds


@pytest.fixture(scope="module")
def patient(lab: Lab) -> Iterator[None]:
    with policy(lab, window=f"{WINDOW}s", gap="3m"):
        yield


def explained(job: Counter) -> dict:
    return json.loads(job.lab.ask("explain", job.ref, "--json").stdout)


def test_the_clock_goes_on_over_a_death_of_both_daemons(lab: Lab, patient: None) -> None:
    """C28, C59."""
    begun = time.time()
    job = Counter.start(lab)
    try:
        # The journal has it once a minute: 15 s of it at least.
        lab.wait("most of its window", lambda: explained(job).get("idle", 0.0) > 77, 120)
        lab.restart_daemon("ctl", "reclaimd", kill=True)
        lab.restart_daemon(job.node, "reclaim-agent", kill=True)
        again = time.time()
        lab.wait("it to be measured", lambda: explained(job).get("measured", 0.0) > again + 4)
        now = explained(job)
        assert now["idle"] > 5 + now["measured"] - again, "from its beginning"
        lab.wait("the end of the window", lambda: "idle-confirmed" in job.kinds(), 120)
        (confirmed,) = [e for e in job.events() if e["kind"] == "idle-confirmed"]
        assert confirmed["at"] - begun >= WINDOW
        assert confirmed["at"] - again < WINDOW - 5
    finally:
        job.cancel()
