"""Forgeries: each is refused with a named reason, and the session can be restored afterwards."""

from __future__ import annotations

import json

import pytest

from tests.cluster.notebook import put
from tests.cluster.sessions import settle

pytestmark = pytest.mark.cluster


def forge(lab, node: str, *words: str, user: str = "root") -> dict:
    """What reclaimd answered to a forged request made on `node` (inside/forger.py)."""
    put(lab, "forger.py")
    program = ["/opt/slurm-reclaim/bin/python", "/shared/inside/forger.py", *words]
    return json.loads(lab.exec(node, *program, user=user).stdout)


# -- who speaks for a node ------------------------------------------------------------------------


def test_root_of_another_node_can_not_give_a_session_away(lab, counter):
    """S1: the other node's root says that it has committed a session that runs here."""
    job = counter()
    other = next(n for n in ("n1", "n2") if n != job.node)
    before, session = job.seen(), job.session()
    as_its_node = forge(lab, other, "committed", job.node, str(job.job), session["session"])
    assert as_its_node["error"] == "WrongNode"
    assert f"node {job.node}" in as_its_node["message"]
    # In its own name it may speak; what it says of that session is no news of it.
    assert "error" not in forge(lab, other, "committed", other, str(job.job), session["session"])
    settle(5)
    assert (job.state, job.session()["state"]) == ("RUNNING", "ACTIVE")
    assert job.counts_on().pid == before.pid
    events = json.loads(lab.out("ctl", "reclaim", "events", "--json"))["events"]
    assert any(e["kind"] == "wrong-node" and job.node in e["reason"] for e in events)
    job.reclaim("hibernate")
    job.reclaim("restore")
    assert job.counts_on().pid == before.pid


def test_orders_and_starts_of_another_node_are_not_told(lab):
    for what in ("orders", "start"):
        assert forge(lab, "n2", what, "n1", "1", "x")["error"] == "WrongNode", what
