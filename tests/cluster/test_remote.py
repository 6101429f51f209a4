"""Checkpoints in an object store: a real S3 server in the lab, its hang, and agents that die."""

from __future__ import annotations

import json
import time

import pytest

from tests.cluster.object_store import (
    OPTIONS,
    PATH,
    ObjectStore,
    after,
    awake,
    before,
    is_whole_on,
    marks,
    s3,
    start_on,
)
from tests.cluster.sessions import only

pytestmark = pytest.mark.cluster

__all__ = ["after", "awake", "before", "s3"]  # fixtures


def test_sent_before_the_commit_and_restored_on_another_node(lab, before, counter):
    job, was = start_on(lab, counter, "n1")
    job.reclaim("hibernate")
    job.wait_for("SPECIAL_EXIT")
    assert f"/{job.job}." in before.names()
    is_whole_on(lab, job, was, "n2")
    # and back again, built upon what was fetched
    job.reclaim("hibernate")
    is_whole_on(lab, job, was, "n1")


def test_check_looks_at_the_remote_place(lab, before):
    said = json.loads(lab.exec("n1", "reclaim", "check", "--json", check=False).stdout)
    found = {check["name"]: check["verdict"] for check in said["checks"]}
    assert found["store remote"] == "ok"
    assert found["store shared"] in ("ok", "warning")
    lab.exec("n1", "chmod", "0644", OPTIONS)
    try:
        said = json.loads(lab.exec("n1", "reclaim", "check", "--json", check=False).stdout)
    finally:
        lab.exec("n1", "chmod", "0600", OPTIONS)
    found = {check["name"]: check["verdict"] for check in said["checks"]}
    assert found["store remote options"] == "failed"


def test_an_object_store_that_hangs_leaves_the_session_running(lab, before, counter, awake):
    job, was = start_on(lab, counter, "n1")
    before.signal("STOP")
    done = job.reclaim("hibernate", check=False)
    assert done.returncode != 0
    assert "did not answer in time" in done.stderr, done.stderr
    now = job.counts_on()
    assert (now.pid, now.node, now.memory) == (was.pid, "n1", True)
    before.signal("CONT")
    job.wait_for_session("ACTIVE")
    lab.wait("a hibernation", lambda: job.reclaim("hibernate", check=False).returncode == 0, 90)
    is_whole_on(lab, job, was, "n2")


def test_a_fresh_job_starts_while_the_object_store_hangs(lab, before, counter, awake):
    """S10: as if we weren't there, or managed, but at once."""
    before.signal("STOP")
    began = time.monotonic()
    job = counter(managed=False)
    assert time.monotonic() - began < 30
    assert job.state == "RUNNING"
    before.signal("CONT")
    job.wait_for_session("ACTIVE")


def test_an_agent_killed_during_the_upload_before_the_commit(lab, before, counter, awake):
    """Nothing was committed: the session runs on. The order comes back, and may be carried out."""
    job, was = start_on(lab, counter, "n1")
    hang_after_reserve(lab, before, job)
    lab.stop_daemon("n1", "reclaim-agent", kill=True)
    before.signal("CONT")
    lab.start_daemon("n1", "reclaim-agent")
    said = "restarted before the commit; the session runs on"
    lab.wait("the recovery", lambda: said in lab.out("ctl", "reclaim", "events", job.ref), 60)
    lab.wait("a hibernation", lambda: is_saved(job), 90)
    is_whole_on(lab, job, was, "n2")


def is_saved(job) -> bool:
    state = job.session()["state"]
    if state == "ACTIVE":
        job.reclaim("hibernate", check=False)
    return state == "HIBERNATED"


def hang_after_reserve(lab, s3: ObjectStore, job) -> None:
    """Order it, and stop the server when the node has committed and sends. A server that has just
    been stopped may need a moment before it answers in time."""
    watch = f"while ! grep -qs sending {PATH}/*/{job.job}.*/*/remote; do sleep 0.002; done"
    for _ in range(6):
        job.reclaim("hibernate", "--no-wait", check=False)
        done = lab.exec("n1", "timeout", "10", "sh", "-c", watch, check=False)
        if done.returncode == 0:
            break
    s3.signal("STOP")
    assert marks(lab, "n1", job) in (["sending"], []), "it was too fast for this test"


def test_sent_after_the_commit_the_node_has_the_only_copy(lab, after, counter, awake):
    job, was = start_on(lab, counter, "n1")
    after.signal("STOP")
    job.reclaim("hibernate")
    job.wait_for("SPECIAL_EXIT")
    assert marks(lab, "n1", job) == ["pending"]
    with only(lab, "n2"):
        lab.wait("n2 excluded", lambda: "n2" in job.excluded)
    after.signal("CONT")
    lab.wait("the upload", lambda: "checkpoint-uploaded" in job.kinds(), 120)
    is_whole_on(lab, job, was, "n2")


def test_what_is_not_uploaded_is_restored_on_its_own_node(lab, after, counter, awake):
    job, was = start_on(lab, counter, "n1")
    after.signal("STOP")
    job.reclaim("hibernate")
    job.reclaim("restore")
    job.wait_for("RUNNING")
    now = job.counts_on()
    assert (now.pid, now.node, now.memory) == (was.pid, "n1", True)


def test_an_agent_killed_during_an_upload_goes_on_with_it(lab, after, counter, awake):
    job, was = start_on(lab, counter, "n1")
    after.signal("STOP")
    job.reclaim("hibernate")
    lab.stop_daemon("n1", "reclaim-agent", kill=True)
    assert marks(lab, "n1", job) == ["pending"]
    lab.start_daemon("n1", "reclaim-agent")
    after.signal("CONT")
    lab.wait("the upload", lambda: "checkpoint-uploaded" in job.kinds(), 120)
    lab.wait("the word of it", lambda: marks(lab, "n1", job) == ["copy"], 30)
    is_whole_on(lab, job, was, "n2")
