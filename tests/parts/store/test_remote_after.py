"""Upload after the commit, and the node's directory as a cache."""

import asyncio
import gc
import os
import threading
import time

import pytest

from slurm_reclaim.adapters.store import marks
from slurm_reclaim.adapters.store.collection import LEASE
from slurm_reclaim.adapters.store.frames import FRAME
from slurm_reclaim.adapters.store.remote import RemoteStore
from slurm_reclaim.daemon.node_uploads import NodeUploads
from slurm_reclaim.errors import StoreUnavailable
from slurm_reclaim.model.checkpoint import STORE_MARKER
from slurm_reclaim.model.upload import UploadState
from tests.parts.store.cloud import DATA, puts
from tests.parts.store.world import ID

# -- upload after the commit ------------------------------------------------------------------


def test_after_the_commit_the_node_has_the_only_copy_until_it_is_uploaded(cloud):
    one, two = cloud.node("n1", before=False), cloud.node("n2", before=False)
    cloud.proxy.fail(status=500)
    one.put(0, {"pages-1.img": DATA})
    assert one.store.committed_here(ID, 0)
    assert one.store.committed(ID) == [0]
    assert one.store.of_job(7, 2001) == [str(ID)]
    assert one.get(0, "pages-1.img") == DATA
    assert told(one) == [(0, UploadState.PENDING)]
    with pytest.raises(StoreUnavailable):
        one.store.uploads.finish_all()
    assert told(one) == [(0, UploadState.PENDING)]
    cloud.proxy.faults.clear()
    assert one.store.uploads.finish_all() == 1
    assert told(one) == [(0, UploadState.UPLOADED)]
    assert two.get(0, "pages-1.img") == DATA
    one.store.uploads.acknowledged(one.store.uploads.told())
    assert told(one) == []
    assert one.store.committed(ID) == [0]


def told(node):
    return [(upload.restarts, upload.state) for upload in node.store.uploads.told()]


def test_what_is_pending_is_told_by_the_next_agent_too(cloud):
    one = cloud.node("n1", before=False)
    one.put(0, {"pages-1.img": DATA})
    again = RemoteStore(one.local, cloud.bucket(), one.work, before=False, timeout=30)
    assert [u.state for u in again.uploads.told()] == [UploadState.PENDING]
    assert again.uploads.finish_all() == 1


def test_uploads_are_unknown_where_the_directory_is_not_there(cloud):
    one = cloud.node("n1", before=False)
    one.put(0, {"pages-1.img": DATA})
    (one.local.root / STORE_MARKER).unlink()
    assert one.store.uploads.told() is None


def test_a_session_restored_and_saved_again_under_its_number_is_not_taken_for_uploaded(cloud):
    one, two = cloud.node("n1", before=False), cloud.node("n2", before=False)
    one.put(0, {"pages-1.img": DATA})
    slow = cloud.proxy.fail(on=puts("/0/index"), times=1, wait=3.0)
    upload = threading.Thread(target=one.store.uploads.finish_all)
    upload.start()
    while not slow.seen:
        time.sleep(0.05)
    assert one.get(0, "pages-1.img") == DATA, "an upload must not hold up a restore"
    one.put(0, {"pages-1.img": DATA[::-1]})
    upload.join()
    assert told(one) == [(0, UploadState.PENDING)]
    one.store.uploads.finish_all()
    assert two.get(0, "pages-1.img") == DATA[::-1]


async def test_the_agent_uploads_and_drops_what_was_deleted_there(cloud):
    one = cloud.node("n1", before=False)
    one.put(0, {"pages-1.img": DATA})
    one.put(1, {"pages-1.img": DATA})
    one.store.uploads.finish_all()
    cloud.node("n2").collection().expire(ID, [0], ended=False)
    one.put(2, {"pages-1.img": DATA})
    changed = threading.Event()
    agent = asyncio.ensure_future(NodeUploads(one.store, changed.set).run())
    for _ in range(200):
        if changed.is_set() and one.here() == [1, 2]:
            break
        await asyncio.sleep(0.1)
    agent.cancel()
    assert one.here() == [1, 2]
    assert told(one)[0] == (1, UploadState.UPLOADED)
    assert cloud.node("n3").get(2, "pages-1.img") == DATA


def test_remains_of_a_commit_that_came_to_nothing_go(cloud):
    one = cloud.node("n1")
    one.put(0, {"pages-1.img": DATA})
    marks.write(one.local.checkpoint_dir(ID, 0), marks.Mark.SENDING)
    assert not one.store.committed_here(ID, 0)
    one.store.uploads.finish_all()
    assert one.here() == []


def test_a_replaced_checkpoint_stays_whole_until_the_new_one_is(cloud):
    """The index of the old one is not written over before the new manifest is there."""
    one, two = cloud.node("n1"), cloud.node("n2")
    one.put(0, {"pages-1.img": DATA})
    cloud.proxy.fail(on=puts("/0/manifest.json"), status=500)
    with pytest.raises(StoreUnavailable):
        one.put(0, {"pages-1.img": DATA[::-1]})
    assert two.get(0, "pages-1.img") == DATA
    cloud.proxy.faults.clear()
    one.put(0, {"pages-1.img": DATA[::-1]})
    assert cloud.node("n3").get(0, "pages-1.img") == DATA[::-1]


# -- the cache ---------------------------------------------------------------------------------


def test_copies_make_room_the_oldest_first_and_never_one_that_is_not_uploaded(cloud, monkeypatch):
    one = cloud.node("n1")
    for number in (0, 1):
        one.put(number, {"pages-1.img": os.urandom(FRAME)})
        os.utime(one.local.checkpoint_dir(ID, number) / marks.MARK, (number + 1, number + 1))
    one.store._before = False
    one.put(2, {"pages-1.img": os.urandom(FRAME)})
    free = monkeypatch_room(monkeypatch, one, gain=10)
    one.store.reserve(15)
    assert one.here() == [1, 2]
    free["base"] = -100
    with pytest.raises(StoreUnavailable, match="needs up to"):
        one.store.reserve(15)
    assert one.here() == [2]
    assert one.store.committed(ID) == [2]


def monkeypatch_room(monkeypatch, node, gain):
    """A disk that has 10 bytes more for each checkpoint that goes."""
    free, start = {"base": 10}, len(node.here())
    monkeypatch.setattr(
        node.local, "check", lambda: free["base"] + gain * (start - len(node.here()))
    )
    return free


def test_a_copy_that_is_read_does_not_make_room(cloud, monkeypatch):
    one = cloud.node("n1")
    one.put(0, {"pages-1.img": DATA})
    monkeypatch_room(monkeypatch, one, gain=10)
    opened = one.store.open(ID, 0)
    with pytest.raises(StoreUnavailable):
        one.store.reserve(15)
    assert one.here() == [0]
    opened.close()
    one.store.reserve(15)
    assert one.here() == []
    assert one.store.committed(ID) == [0]


def test_what_was_read_by_an_agent_that_was_killed_makes_room_later(cloud, monkeypatch):
    """Whoever reads says so in a file of its own, and takes it away when all is well."""
    one = cloud.node("n1")
    one.put(0, {"pages-1.img": DATA})
    monkeypatch_room(monkeypatch, one, gain=10)
    folder = one.local.session_dir(ID)
    reader = folder / ".reading-n1.0badcafe"
    reader.touch()
    with pytest.raises(StoreUnavailable):
        one.store.reserve(15)
    os.utime(reader, (time.time() - LEASE - 1,) * 2)
    (folder / ".uploading-0").mkdir()
    (folder / ".uploading-0" / "index").touch()
    one.store.reserve(15)
    assert one.here() == []
    assert not folder.exists()


def test_nothing_is_left_of_a_manifest_that_was_looked_at(cloud, monkeypatch):
    one, two = cloud.node("n1"), cloud.node("n2")
    one.put(0, {"pages-1.img": DATA})
    assert two.store.read(ID, 0).restarts == 0
    monkeypatch_room(monkeypatch, two, gain=10)
    two.store.reserve(15)
    assert not two.local.session_dir(ID).exists()


def test_an_agent_that_runs_for_long_remembers_no_session_of_the_past(cloud, monkeypatch):
    one = cloud.node("n1", before=False)
    one.put(0, {"pages-1.img": DATA})
    one.store.uploads.finish_all()
    one.store.uploads.acknowledged(one.store.uploads.told())
    assert told(one) == [], "what was heard is not told again"
    monkeypatch_room(monkeypatch, one, gain=10)
    one.store.reserve(15)
    assert told(one) == []
    assert one.store.uploads._heard == set()
    gc.collect()
    assert len(one.store.cache._locks) == 0


def test_no_report_waits_for_a_session_that_is_being_sent(cloud):
    """Reports of the whole node come from the thread that learns what the controller knows."""
    one = cloud.node("n1")
    one.put(0, {"pages-1.img": DATA})
    uploads = one.store.uploads
    with one.store.cache.locked(ID):
        aside = threading.Thread(target=uploads.acknowledged, args=(uploads.told(),), daemon=True)
        aside.start()
        aside.join(10)
        assert not aside.is_alive()
        assert told(one) == [(0, UploadState.STORED)]
    uploads.acknowledged(uploads.told())
    assert told(one) == []
