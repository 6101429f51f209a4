"""What stands around a session: how it is held, and what is said when something of ours is away."""

from __future__ import annotations

import json

import pytest

from tests.cluster.sessions import only

pytestmark = pytest.mark.cluster
DROP_IN = "/etc/slurm-reclaim/conf.d/zz-test.toml"


def test_a_plain_hold_can_be_chosen(lab, counter):
    text = '[slurm]\nheld_state = "held"\n'
    lab.exec("ctl", "sh", "-c", f"cat > {DROP_IN}", stdin=text)
    lab.restart_daemon("ctl", "reclaimd")
    try:
        job = counter()
        before = job.seen()
        job.reclaim("hibernate")
        assert job.state == "PENDING"
        assert job.squeue("%r") == "job requeued in held state"
        job.reclaim("restore")
        assert job.counts_on().pid == before.pid
    finally:
        lab.exec("ctl", "rm", DROP_IN)
        lab.restart_daemon("ctl", "reclaimd")


def test_a_job_that_starts_without_the_agent_is_an_event(lab, counter):
    """It runs as if we weren't there (S10), and the agent says why when it is back."""
    lab.stop_daemon("n1", "reclaim-agent", kill=True)
    try:
        with only(lab, "n1"):
            job = counter("--job-name=spawner-jupyterhub", reclaim="on", managed=False)
        assert job.node == "n1"
        assert job.seen().pid != 300, "no namespace of its own"
    finally:
        lab.start_daemon("n1", "reclaim-agent")

    def said() -> list[str]:
        events = json.loads(lab.out("ctl", "reclaim", "events", "--json"))["events"]
        mine = [e for e in events if e["job_id"] == job.job]
        return [e["reason"] for e in mine if e["kind"] == "job-started-unmanaged"]

    (reason,) = lab.wait("the event", said)
    assert "agent" in reason
    job.counts_on()
