"""Checkpoints at a remote place: servers that fail in every way a network can."""

import os
import time

import pytest

from slurm_reclaim.adapters.store import bucket as buckets
from slurm_reclaim.adapters.store import marks
from slurm_reclaim.adapters.store.bucket import Bucket, Denied
from slurm_reclaim.adapters.store.frames import FRAME
from slurm_reclaim.adapters.store.probe import look, probe
from slurm_reclaim.errors import StoreUnavailable
from tests.parts.store.cloud import DATA, PREFIX, puts
from tests.parts.store.test_contents import write_all
from tests.parts.store.world import ID


def test_what_one_node_saves_another_restores(cloud):
    one, two = cloud.node("n1"), cloud.node("n2")
    one.put(0, {"pages-1.img": DATA, "core-1.img": b"core"})
    assert one.store.committed(ID) == two.store.committed(ID) == [0]
    assert two.store.of_job(7, 2001) == [str(ID)]
    assert two.store.of_job(7, 2002) == two.store.of_job(70, 2001) == []
    assert two.store.read(ID, 0) == one.store.read(ID, 0)
    assert two.get(0, "pages-1.img") == DATA
    assert two.mark() is marks.Mark.COPY


def test_the_keys_are_the_paths_of_the_directory(cloud):
    one = cloud.node("n1")
    manifest = one.put(0, {"pages-1.img": DATA})
    (pack,) = manifest.packs
    assert cloud.stored() == {"0/index", "0/manifest.json", f"packs/{pack.path}"}


def test_the_manifest_is_the_last_to_go(cloud):
    cloud.node("n1").put(0, {"pages-1.img": DATA})
    sent = [path for method, path in cloud.proxy.requests if method == "PUT"]
    assert sent[-1].endswith("/0/manifest.json")


def test_a_second_checkpoint_sends_what_is_new(cloud):
    one, two = cloud.node("n1"), cloud.node("n2")
    one.put(0, {"pages-1.img": DATA})
    first = len(cloud.proxy.requests)
    one.put(1, {"pages-1.img": DATA})
    again = [p for m, p in cloud.proxy.requests[first:] if m == "PUT" and "/packs/0-" in p]
    assert again == []
    assert two.get(1, "pages-1.img") == DATA
    # and one that was restored elsewhere is built upon there
    assert two.put(2, {"pages-1.img": DATA}).contents.stored < FRAME
    assert one.get(2, "pages-1.img") == DATA


def test_what_it_shares_is_looked_for_right_before_the_manifest_goes(cloud, monkeypatch):
    """A collector that began before our word was there may have taken it meanwhile."""
    one, two = cloud.node("n1"), cloud.node("n2")
    (pack,) = one.put(0, {"pages-1.img": DATA}).packs
    put = Bucket.put

    def meanwhile(bucket, key, path, deadline):
        put(bucket, key, path, deadline)
        if key.endswith("/1/index"):
            cloud.direct.remove(f"{PREFIX}packs/{pack.path}", time.monotonic() + 10)

    monkeypatch.setattr(Bucket, "put", meanwhile)
    assert pack in one.put(1, {"pages-1.img": DATA}).packs
    assert two.get(1, "pages-1.img") == DATA


def test_large_packs_go_in_parts(cloud, monkeypatch):
    monkeypatch.setattr("slurm_reclaim.adapters.store.checksums.PART", 5 << 20)
    monkeypatch.setattr(buckets, "PART", 5 << 20)
    one, two = cloud.node("n1"), cloud.node("n2")
    data = os.urandom(17 << 20)
    one.put(0, {"pages-1.img": data})
    packs = [h for k, h in cloud.direct.list(PREFIX, 10).items() if "/packs/" in k]
    sent = [m for m, p in cloud.proxy.requests if m == "PUT" and "/packs/" in p]
    assert len(sent) == 4
    # Google's is that of the whole, S3's of the parts and their number.
    assert packs[0].checksum.endswith({"s3": "-4", "gs": "=="}[cloud.scheme]), packs
    reread = [p for m, p in cloud.proxy.requests if m == "GET" and "/packs/" in p]
    assert reread == [], "the checksum of parts was not understood"
    assert two.get(0, "pages-1.img") == data


def test_a_directory_that_was_a_store_by_itself_is_refused(cloud):
    one = cloud.node("n1")
    one.local.check()  # which names it
    with pytest.raises(StoreUnavailable, match="by itself"):
        one.store.check()


def test_a_copy_that_rots_here_is_fetched_again(cloud):
    one = cloud.node("n1")
    one.put(0, {"pages-1.img": DATA})
    (one.local.checkpoint_dir(ID, 0) / "index").write_bytes(b"?")
    assert one.get(0, "pages-1.img") == DATA


def test_a_copy_here_is_enough_when_the_remote_place_is_away(cloud):
    one = cloud.node("n1")
    one.put(0, {"pages-1.img": DATA})
    cloud.proxy.fail(status=500)
    assert one.get(0, "pages-1.img") == DATA


def test_the_probe_writes_compares_and_removes(cloud):
    one = cloud.node("n1")
    seconds, ahead = probe(one.store.bucket)
    assert seconds > 0
    assert abs(ahead) < 60
    assert not [key for key in cloud.direct.list("", 10) if ".check-" in key]
    cloud.proxy.fail(on=puts(".check-"), status=403, code="AccessDenied")
    with pytest.raises(Denied, match="403"):
        probe(one.store.bucket)
    with pytest.raises(ValueError, match="can't be read"):
        look(cloud.url, str(one.work / "nothing"))


def test_data_written_is_what_a_pipe_gave(cloud):
    staged = (one := cloud.node("n1")).begin(0)
    with staged.receive("pages-1.img") as pipe:
        write_all(pipe, DATA)
    one.commit(staged, 0)
    staged.close()
    assert one.get(0, "pages-1.img") == DATA
