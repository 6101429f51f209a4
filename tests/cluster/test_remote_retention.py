"""Checkpoints in an object store as time goes by: a real S3 server, and a node that is lost."""

from __future__ import annotations

import re

import pytest

from tests.cluster.object_store import (
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
from tests.cluster.test_retention import FORGETS, again, forgetful, listed, reclaim, retention

pytestmark = pytest.mark.cluster

__all__ = ["after", "awake", "before", "forgetful", "s3"]  # fixtures


def keys(s3: ObjectStore, job) -> list[str]:
    """Of a session, below its folder."""
    found = re.findall(r"<Key>([^<]+)</Key>", s3.names())
    return [key.split("/", 3)[3] for key in found if f"/{job.job}." in key]


def stored(s3: ObjectStore, job) -> list[int]:
    """The checkpoints that are really there, whoever says what."""
    return sorted(int(key.split("/")[0]) for key in keys(s3, job) if key.endswith("manifest.json"))


def test_what_ended_goes_what_sleeps_or_is_pinned_stays(lab, before, counter, awake):
    asleep, over, pinned = (counter(mib=8) for _ in range(3))
    for job in (asleep, over, pinned):
        job.reclaim("hibernate")
    reclaim(lab, "pin", str(pinned.job), user="alice")
    with retention(lab, quota="1B"):
        before.signal("STOP")
        for job in (over, pinned):
            job.cancel()
            job.wait_for_session("ENDED")
        lab.exec("ctl", "sleep", "20")
        before.signal("CONT")
        for job in (asleep, over, pinned):
            assert stored(before, job) == [0]
            assert "checkpoint-missing" not in job.kinds()
        lab.wait("the ended one to go", lambda: keys(before, over) == [], FORGETS)
        lab.wait("the event", lambda: "checkpoint-expired" in over.kinds())
        assert stored(before, asleep) == stored(before, pinned) == [0]
        assert "all there is" in listed(lab, asleep)[0]["kept"]
        reclaim(lab, "unpin", str(pinned.job), user="alice")
        lab.wait("the other", lambda: keys(before, pinned) == [], 60)
    was = asleep.seen()
    is_whole_on(lab, asleep, was, "n2")


def test_a_newer_checkpoint_takes_the_place_and_is_restored_elsewhere(lab, before, counter):
    job, _ = start_on(lab, counter, "n1")
    with retention(lab, per_session=1):
        again(job, 3)
        job.reclaim("hibernate")
        lab.wait("the old ones to go", lambda: stored(before, job) == [3], 90)
        lab.wait("their packs", lambda: not [k for k in keys(before, job) if k[0] in "012"], 30)
        was = job.seen()
        assert "every byte" in reclaim(lab, "verify", f"{job.job}/3").stdout
        is_whole_on(lab, job, was, "n2")


def test_verify_reads_the_object_store_and_export_too(lab, before, counter):
    job, was = start_on(lab, counter, "n1")
    job.reclaim("hibernate")
    assert "every byte" in reclaim(lab, "verify", str(job.job)).stdout
    victim = next(key for key in keys(before, job) if key.startswith("packs/"))
    found = re.findall(r"<Key>([^<]+)</Key>", before.names())
    url = f"http://ctl:5555/checkpoints/{next(k for k in found if k.endswith(victim))}"
    file = f"/root/{job.job}"
    curl = "curl -sf -H 'Authorization: AWS k:s'"  # the server believes any
    script = (
        f"{curl} {url} -o {file} && cp {file} {file}.good && "
        f"printf x | dd of={file} bs=1 seek=9 conv=notrunc && {curl} -T {file} {url}"
    )
    lab.exec("ctl", "sh", "-c", script)
    spoiled = reclaim(lab, "verify", str(job.job), check=False)
    assert spoiled.returncode == 50
    assert f"of {victim.removeprefix('packs/')} is not what was written" in spoiled.stderr
    for node in ("n1", "n2"):
        done = reclaim(lab, "export", str(job.job), f"{file}.tar", node=node, check=False)
        assert done.returncode == 50, done.stderr
    lab.exec("ctl", "sh", "-c", f"{curl} -T {file}.good {url}")
    reclaim(lab, "export", str(job.job), f"{file}.tar", node="n2")
    names = lab.out("n2", "tar", "-t", "-f", f"{file}.tar").splitlines()
    assert names[-1].endswith("/0/manifest.json")
    lab.exec("n2", "rm", f"{file}.tar")
    is_whole_on(lab, job, was, "n2")


def test_expired_by_hand_it_is_gone_and_so_is_the_copy(lab, before, counter):
    job, _ = start_on(lab, counter, "n1")
    with retention(lab, ended="1h", per_session=5):
        again(job, 2)
        refused = reclaim(lab, "expire", f"{job.job}/1", check=False)
        assert refused.returncode == 20
        reclaim(lab, "expire", f"{job.job}/0", user="alice")
        assert stored(before, job) == [1]
        job.reclaim("hibernate")
        assert "every byte" in reclaim(lab, "verify", str(job.job)).stdout


def test_a_node_that_is_lost_before_its_upload(lab, after, counter, awake):
    """The session waits for it, is shown where it is, and goes back by an operator's word."""
    job, first = start_on(lab, counter, "n1")
    job.reclaim("hibernate")
    lab.wait("the upload", lambda: "checkpoint-uploaded" in job.kinds(), 120)
    with only(lab, "n1"):
        job.reclaim("restore")
        job.wait_for("RUNNING")
    old = job.counts_on()
    with retention(lab, per_session=1, quota="1TiB"):
        after.signal("STOP")
        job.reclaim("hibernate")
        job.wait_for("SPECIAL_EXIT")
        assert marks(lab, "n1", job) == ["copy", "pending"]
        early = reclaim(lab, "abandon", f"{job.job}/1", check=False)
        assert early.returncode != 0
        lab.kill("n1")
        try:
            after.signal("CONT")
            lab.exec("ctl", "sleep", "25")  # until its agent counts as silent
            found = listed(lab, job)
            assert found[1]["kept"] == "it is on n1 only until it is uploaded"
            assert stored(after, job) == [0], "the older one is all there is in the store"
            assert "checkpoint-missing" not in job.kinds()
            refused = job.reclaim("restore", check=False)
            assert "n1: its agent is not heard of" in refused.stderr
            other = reclaim(lab, "abandon", f"{job.job}/1", user="alice", check=False)
            assert other.returncode == 26
            assert "checkpoint 0" in reclaim(lab, "abandon", f"{job.job}/1").stdout
            assert "checkpoint-abandoned" in job.kinds()
            with only(lab, "n2"):
                job.reclaim("restore")
                job.wait_for("RUNNING")
            now = job.counts_on()
            assert (now.pid, now.node, now.memory) == (first.pid, "n2", True)
            assert now.pid == old.pid
        finally:
            lab.boot("n1")
        # What it had is uploaded when it is back, and is one of the older ones then.
        lab.wait("its upload", lambda: stored(after, job) == [0, 1], 120)
        job.reclaim("hibernate")
        lab.wait("both to go", lambda: stored(after, job) == [2], 120)
    lab.exec("n1", "test", "-d", PATH)
