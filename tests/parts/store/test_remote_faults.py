"""A remote place that fails: what passes is overcome, what stays is said, nothing is made up."""

import os
import time

import pytest

from slurm_reclaim.adapters.store.bucket import Denied
from slurm_reclaim.adapters.store.frames import FRAME
from slurm_reclaim.adapters.store.leases import GUARD
from slurm_reclaim.adapters.store.probe import probe
from slurm_reclaim.errors import IntegrityError, StoreUnavailable
from slurm_reclaim.model.checkpoint import STORE_MARKER
from tests.parts.store.bucket import BUCKET
from tests.parts.store.cloud import DATA, PREFIX, gets, patience, puts, takes_long
from tests.parts.store.world import ID

ONCE = {
    "refused for a moment": {"status": 503, "code": "SlowDown"},
    "broken for a moment": {"status": 500},
    "answer lost": {"lost": True},
    "half of it arrives": {"short_up": True},
}


@pytest.mark.parametrize("part", ["/packs/", "/0/index", "/0/manifest.json"])
@pytest.mark.parametrize("kind", ONCE)
def test_a_fault_that_passes_is_overcome(cloud, kind, part):
    one, two = cloud.node("n1"), cloud.node("n2")
    fault = cloud.proxy.fail(on=puts(part), times=1, **ONCE[kind])
    one.put(0, {"pages-1.img": DATA})
    assert fault.seen == 1
    assert two.get(0, "pages-1.img") == DATA
    assert two.collection().verify(ID, 0) == []


FOR_GOOD = {
    "refused": {"status": 403, "code": "AccessDenied"},
    "clocks apart": {"status": 403, "code": "RequestTimeTooSkewed"},
    "broken": {"status": 500},
    "half of it arrives": {"short_up": True},
    "slow": {"wait": 8.0},
}


@takes_long
@pytest.mark.parametrize("part", ["/packs/", "/0/index", "/0/manifest.json"])
@pytest.mark.parametrize("kind", FOR_GOOD)
def test_a_fault_that_stays_ends_the_commit_and_nothing_counts(cloud, kind, part):
    timeout = 4.0 if kind == "slow" else 30.0
    one, two = cloud.node("n1", timeout=timeout), cloud.node("n2")
    cloud.proxy.fail(on=puts(part), **FOR_GOOD[kind])
    with pytest.raises(StoreUnavailable) as failure:
        one.put(0, {"pages-1.img": DATA})
    if kind == "refused":
        assert "refused (403)" in failure.value.message
    if kind == "clocks apart":
        assert "clocks differ" in failure.value.message
    if kind == "slow":
        assert "in time" in failure.value.message or "time allowed" in failure.value.message
    assert not one.store.committed_here(ID, 0)
    assert one.here() == []
    cloud.proxy.faults.clear()
    if kind != "slow":  # which may still arrive, whole
        assert two.store.committed(ID) == [] or part == "/0/manifest.json"
        with pytest.raises(IntegrityError):
            two.get(0, "pages-1.img")
    one.put(0, {"pages-1.img": DATA[::-1]})
    assert two.get(0, "pages-1.img") == DATA[::-1]


def test_a_manifest_whose_answers_are_all_lost_counts_once_it_is_seen_there(cloud):
    one, two = cloud.node("n1"), cloud.node("n2")
    cloud.proxy.fail(on=puts("/0/manifest.json"), lost=True)
    one.put(0, {"pages-1.img": DATA})
    assert two.get(0, "pages-1.img") == DATA


def test_no_bucket_is_said(cloud):
    cloud.url = f"{cloud.scheme}://not-there/prefix"
    one = cloud.node("n1")
    for ask in (one.store.check, lambda: one.store.of_job(7, 2001), lambda: one.store.reserve(0)):
        with pytest.raises(StoreUnavailable, match=r"bucket|no checkpoint store"):
            ask()
    with pytest.raises(Denied, match="no such bucket"):
        probe(one.store.bucket)


def test_a_wrong_prefix_is_not_an_empty_store(cloud):
    cloud.url += "-mistyped"
    one = cloud.node("n1")
    with pytest.raises(StoreUnavailable, match=STORE_MARKER):
        one.store.of_job(7, 2001)


@pytest.mark.parametrize("cloud", ["s3"], indirect=True)
def test_clocks_apart_are_named(cloud):
    one = cloud.node("n1")
    cloud.proxy.fail(status=403, code="RequestTimeTooSkewed", on=gets(""))
    cloud.proxy.fail(status=403, code="RequestTimeTooSkewed", on=puts(""))
    with pytest.raises(Denied, match=r"clock|403"):
        one.store.bucket.read("x")
    with pytest.raises(StoreUnavailable, match="clocks differ"):
        one.store.bucket.list("lab/")


@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 403}, {"lost": True}, {"wait": 20}])
def test_what_does_not_answer_is_never_none(cloud, fault, monkeypatch):
    one = cloud.node("n1")
    patience(monkeypatch, 1.5)
    one.store.bucket.connect()
    cloud.proxy.fail(**fault)
    for ask in (
        lambda: one.store.of_job(7, 2001),
        lambda: one.store.committed(ID),
        lambda: one.store.read(ID, 0),
        one.store.check,
    ):
        with pytest.raises(StoreUnavailable):
            ask()
    cloud.proxy.faults.clear()
    one.store.bucket._quiet_until = 0.0
    assert one.store.of_job(7, 2001) == []


def test_a_listing_that_fails_after_the_first_answer_is_never_none(cloud):
    one = cloud.node("n1")
    cloud.proxy.fail(on=gets(f"/{BUCKET}"), status=500)
    with pytest.raises(StoreUnavailable):
        one.store.of_job(7, 2001)


def test_the_servers_clock_is_asked_for_and_nothing_stays(cloud):
    bucket = cloud.node("n1").store.bucket
    assert abs(bucket.now(time.monotonic() + 10) - time.time()) < 60
    assert not [key for key in cloud.direct.list("", 10) if ".clock-" in key]


def test_a_server_that_does_not_show_what_it_took_is_not_believed(cloud):
    bucket = cloud.node("n1").store.bucket
    cloud.proxy.fail(on=lambda method, path: method == "HEAD", status=404)
    with pytest.raises(StoreUnavailable, match="does not show"):
        bucket.now(time.monotonic() + 10)


def test_silence_is_waited_for_once_and_not_by_every_job(cloud, monkeypatch):
    one = cloud.node("n1")
    patience(monkeypatch, 1.0)
    one.store.bucket.connect()
    cloud.proxy.fail(wait=30.0)
    with pytest.raises(StoreUnavailable):
        one.store.of_job(7, 2001)
    asked = len(cloud.proxy.requests)
    with pytest.raises(StoreUnavailable, match="did not answer"):
        one.store.of_job(8, 2001)
    assert len(cloud.proxy.requests) == asked


@pytest.mark.parametrize("part", ["/packs/", "/0/index", "/0/manifest.json"])
def test_half_an_answer_is_fetched_again(cloud, part):
    one, two = cloud.node("n1"), cloud.node("n2")
    one.put(0, {"pages-1.img": DATA})
    fault = cloud.proxy.fail(on=gets(part), times=1, short_down=True)
    assert two.get(0, "pages-1.img") == DATA
    assert fault.seen == 1


def lists(method, path):
    return method == "GET" and path.rstrip("/") == f"/{BUCKET}"


def test_a_list_that_is_refused_for_a_moment_is_asked_for_again(cloud):
    """Before anything is sent or fetched the remote place is asked what it has."""
    one, two = cloud.node("n1"), cloud.node("n2")
    for node in (one, two):
        node.store.bucket.connect()
    fault = cloud.proxy.fail(on=lists, times=1, status=503, code="SlowDown")
    one.put(0, {"pages-1.img": DATA})
    assert fault.seen == 1
    fault = cloud.proxy.fail(on=lists, times=1, status=503, code="SlowDown")
    assert two.get(0, "pages-1.img") == DATA
    assert fault.seen == 1


@pytest.mark.parametrize("part", ["/packs/", "/0/index", "/0/manifest.json"])
def test_a_fetch_that_fails_leaves_nothing_that_counts(cloud, part):
    one, two = cloud.node("n1"), cloud.node("n2")
    one.put(0, {"pages-1.img": DATA})
    cloud.proxy.fail(on=gets(part), status=500)
    with pytest.raises(StoreUnavailable):
        two.get(0, "pages-1.img")
    assert not two.store._whole(two.local.checkpoint_dir(ID, 0))
    cloud.proxy.faults.clear()
    assert two.get(0, "pages-1.img") == DATA


def test_other_bytes_there_are_found_before_they_are_used(cloud):
    one, two = cloud.node("n1"), cloud.node("n2")
    (pack,) = one.put(0, {"pages-1.img": DATA}).packs
    good = (one.local.session_dir(ID) / "packs" / pack.path).read_bytes()
    bad = bytearray(good)
    bad[FRAME] ^= 1
    cloud.damage(f"packs/{pack.path}", bytes(bad))
    with pytest.raises(IntegrityError, match="not what was written"):
        two.get(0, "pages-1.img")
    (found,) = one.collection().verify(ID, 0)
    assert f"of {pack.path} is not what was written" in found
    cloud.damage(f"packs/{pack.path}", good)
    assert two.get(0, "pages-1.img") == DATA
    assert one.collection().verify(ID, 0) == []


@pytest.mark.parametrize("cloud", ["s3"], indirect=True)
def test_parts_of_a_broken_upload_do_not_stay(cloud, monkeypatch):
    """C64: the network goes away when some parts have arrived, and nobody can take them back."""
    monkeypatch.setattr("slurm_reclaim.adapters.store.checksums.PART", 5 << 20)
    one = cloud.node("n1", timeout=3.0)

    def fragments():
        return cloud.direct._fs.call_s3("list_multipart_uploads", Bucket=BUCKET).get("Uploads", [])

    def network_is_gone(method, path):
        parts = [m for m, p in cloud.proxy.requests if m == "PUT" and "/packs/" in p]
        return len(parts) >= 3

    def half_an_upload(number):
        cloud.proxy.requests.clear()
        fault = cloud.proxy.fail(on=network_is_gone, status=503)
        with pytest.raises(StoreUnavailable):
            one.put(number, {"pages-1.img": os.urandom(17 << 20)})
        cloud.proxy.faults.remove(fault)
        assert fragments()

    half_an_upload(0)
    one.put(0, {"pages-1.img": DATA})
    assert fragments() == [], "the next upload of the session takes them away"
    half_an_upload(1)
    cloud.direct.remove(f"{PREFIX}{GUARD}1", time.monotonic() + 10)  # as after a day
    cloud.node("n2").collection().expire(ID, [0], ended=True)
    assert fragments() == [], "and so does the end of the session"
