"""What is done to an old store at a remote place: nothing that is needed is ever lost, whatever
fails, wherever it is interrupted."""

import threading
import time

import pytest

from slurm_reclaim.adapters.store import leases
from slurm_reclaim.adapters.store.bucket import Bucket
from slurm_reclaim.errors import StoreUnavailable, WrongState
from slurm_reclaim.model.checkpoint import STORE_MARKER
from tests.parts.store.cloud import PREFIX, gets, takes_long
from tests.parts.store.kept_away import SECOND, removals, three, whole
from tests.parts.store.world import ID


def test_the_catalogue_shows_what_is_there_and_counts_stored_bytes(cloud):
    one = three(cloud)
    collection = cloud.node("n2").collection()
    ((mine,), after) = collection.catalogue()
    assert (mine.session, after) == (str(ID), "")
    assert [c.restarts for c in mine.checkpoints] == [0, 1, 2]
    assert mine.checkpoints[0].user == "alice"
    objects = cloud.direct.list(PREFIX, 10)
    assert mine.bytes == sum(held.size for held in objects.values())
    assert mine.leftovers == ()
    first = one.store.read(ID, 0).packs[0]
    parts = {part.path: part for part in collection.parts(ID, 1)}
    assert parts[f"packs/{first.path}"].also == (0, 2)
    assert collection.of_job(7) == {ID: [0, 1, 2]}
    assert collection.of_job(70) == {}


def test_a_manifest_is_read_once_and_again_when_it_is_another(cloud):
    one = three(cloud)
    collection = one.collection()
    collection.catalogue()
    asked = len(cloud.proxy.requests)
    collection.catalogue()
    reads = [p for m, p in cloud.proxy.requests[asked:] if m == "GET" and "manifest" in p]
    assert reads == []
    cloud.damage("1/manifest.json", b"{")
    ((mine,), _) = collection.catalogue()
    assert [bool(c.problem) for c in mine.checkpoints] == [False, True, False]


def test_a_large_catalogue_comes_in_pages(cloud):
    three(cloud)
    for folder in ("6.2001.1000", "8.2001.1000", "9.2001.1000"):
        path = f"{cloud.direct._root}/lab/{folder}/packs/0-1.pack"
        cloud.direct._fs.pipe_file(path, b"x")
    found, after, collection = [], "", cloud.node("n2").collection()
    for _ in range(10):
        some, after = collection.catalogue(after, most=2)
        found += [one.session for one in some]
        if not after:
            break
    assert found == [f"lab/{job}.2001.1000" for job in (6, 7, 8, 9)]


@takes_long
@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 403}, {"lost": True}])
@pytest.mark.parametrize("on", ["list", "manifest"])
def test_what_does_not_answer_is_not_a_catalogue(cloud, fault, on):
    three(cloud)
    collection = cloud.node("n2").collection()
    cloud.proxy.fail(on=gets("/1/manifest.json") if on == "manifest" else listing, **fault)
    with pytest.raises(StoreUnavailable):
        collection.catalogue()
    cloud.proxy.faults.clear()
    ((mine,), _) = collection.catalogue()
    assert [c.problem for c in mine.checkpoints] == ["", "", ""]


def listing(method, path):
    return method == "GET" and "manifest" not in path and path.strip("/").count("/") == 0


@takes_long
@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 503}, {"lost": True}])
def test_a_look_is_tried_again(cloud, fault):
    three(cloud)
    cloud.proxy.fail(on=lambda method, path: method == "HEAD", times=2, **fault)
    cloud.proxy.fail(on=listing, times=2, **fault)
    cloud.proxy.fail(on=gets("/1/manifest.json"), times=2, **fault)
    ((mine,), _) = cloud.node("n2").collection().catalogue()
    assert [c.problem for c in mine.checkpoints] == ["", "", ""]


def test_a_wrong_prefix_is_not_an_empty_store(cloud):
    three(cloud)
    cloud.direct._fs.rm_file(f"{cloud.direct._root}/{STORE_MARKER}")
    collection = cloud.node("n2").collection()
    with pytest.raises(StoreUnavailable, match=STORE_MARKER):
        collection.catalogue()
    with pytest.raises(StoreUnavailable, match=STORE_MARKER):
        collection.expire(ID, [0], ended=True)


def test_what_is_deleted_is_gone_everywhere_and_shared_packs_stay(cloud):
    one, two = three(cloud), cloud.node("n2")
    before = sum(held.size for held in cloud.direct.list(PREFIX, 10).values())
    freed = two.collection().expire(ID, [0, 1], ended=False)
    left = sum(held.size for held in cloud.direct.list(PREFIX, 10).values())
    assert freed == before - left > 0
    whole(cloud, 2)
    assert two.get(2, "pages-1.img") == SECOND
    # The agent that did it has dropped its copies; the one that holds others drops them later.
    assert two.here() == [2]
    assert one.here() == [0, 1, 2]
    assert one.store.copies.drop_deleted(1.0) == 2
    assert one.here() == [2]


def test_the_node_that_deletes_drops_its_own_copies(cloud):
    one = three(cloud)
    one.collection().expire(ID, [0, 1], ended=False)
    assert one.here() == [2]


def test_of_an_ended_session_nothing_is_left(cloud):
    one = three(cloud)
    cloud.damage("5/index", b"left by what was interrupted")
    one.collection().expire(ID, [0, 1, 2], ended=True)
    assert cloud.stored() == set()
    assert one.here() == []
    assert one.collection().catalogue() == ([], "")


def test_the_newest_of_a_session_that_lives_is_refused(cloud):
    one = three(cloud)
    with pytest.raises(WrongState, match="newest"):
        one.collection().expire(ID, [1, 2], ended=False)
    whole(cloud, 0, 1, 2)


def test_no_pack_goes_where_a_manifest_can_not_be_read(cloud):
    one = three(cloud)
    cloud.damage("packs/0-9.pack", b"which 1 may need")
    packs = {key for key in cloud.stored() if key.startswith("packs/")}
    cloud.damage("1/manifest.json", b"{")
    one.collection().expire(ID, [0], ended=False)
    assert packs <= cloud.stored()


def test_packs_stay_while_a_checkpoint_is_on_its_way(cloud):
    one = three(cloud)
    cloud.damage("packs/0-9.pack", b"which 3 may count on")
    packs = {key for key in cloud.stored() if key.startswith("packs/")}
    cloud.damage(f"{leases.GUARD}3", b"")
    cloud.damage("3/index", b"half of one")
    one.collection().expire(ID, [0, 1], ended=False)
    assert packs | {"3/index"} <= cloud.stored()
    assert "0/manifest.json" not in cloud.stored()
    one.collection().expire(ID, [2], ended=True)
    assert packs | {"3/index"} <= cloud.stored()


def test_packs_that_are_newer_than_every_checkpoint_stay(cloud):
    """Whoever brings them may have no word there, or not any more."""
    one = three(cloud)
    cloud.damage("packs/3-1.pack", b"not named yet")
    cloud.damage("packs/1-9.pack", b"named by nobody")
    one.collection().expire(ID, [0], ended=False)
    assert "packs/3-1.pack" in cloud.stored()
    assert "packs/1-9.pack" not in cloud.stored()


def test_who_begins_to_send_in_the_midst_ends_it(cloud, monkeypatch):
    one = three(cloud)
    for number in range(3):
        cloud.damage(f"packs/0-{7 + number}.pack", b"named by nobody")
    monkeypatch.setattr("slurm_reclaim.adapters.store.remote_collection._LOOK_AGAIN", -1.0)
    remove = Bucket.remove

    def then_sent(bucket, key, deadline):
        remove(bucket, key, deadline)
        if "/packs/" in key:
            cloud.damage(f"{leases.GUARD}3", b"")

    monkeypatch.setattr(Bucket, "remove", then_sent)
    with pytest.raises(WrongState, match="read or sent"):
        one.collection().expire(ID, [], ended=False)
    left = [key for key in cloud.stored() if key.startswith("packs/0-")]
    assert {"packs/0-8.pack", "packs/0-9.pack"} <= set(left)


def test_a_word_that_is_old_holds_nothing_up(cloud, monkeypatch):
    one = three(cloud)
    cloud.damage(f"{leases.GUARD}3", b"")
    cloud.damage(f"{leases.READING}n9-1.ab", b"")
    monkeypatch.setattr(leases, "GUARD_FOR", -10.0)
    monkeypatch.setattr(leases, "LEASE", -10.0)
    one.store.timeout = -10.0
    one.collection().expire(ID, [0, 1, 2], ended=True)
    assert cloud.stored() == set()


@takes_long
def test_what_is_read_is_not_deleted(cloud):
    """A restore on another node fetches at that moment."""
    one, two = three(cloud), cloud.node("n2")
    slow = cloud.proxy.fail(on=gets("/packs/"), times=1, wait=4.0)
    got = []
    restore = threading.Thread(target=lambda: got.append(two.get(1, "pages-1.img")))
    restore.start()
    while not slow.seen:
        time.sleep(0.02)
    with pytest.raises(WrongState, match="is being read by"):
        one.collection().expire(ID, [0, 1, 2], ended=True)
    restore.join()
    assert got == [SECOND]
    assert not any(removals("manifest")(*asked) for asked in cloud.proxy.requests)
    whole(cloud, 0, 1, 2)
    one.collection().expire(ID, [0, 1, 2], ended=True)
    assert cloud.stored() == set()


def test_a_reader_that_comes_between_look_and_removal_gets_it_back(cloud, monkeypatch):
    one = three(cloud)
    remove = Bucket.remove

    def late(bucket, key, deadline):
        remove(bucket, key, deadline)
        if key.endswith("/1/manifest.json"):
            cloud.damage(f"{leases.READING}n9-1.ab", b"")

    monkeypatch.setattr(Bucket, "remove", late)
    with pytest.raises(WrongState, match="is being read by n9"):
        one.collection().expire(ID, [0, 1], ended=False)
    monkeypatch.setattr(Bucket, "remove", remove)
    whole(cloud, 0, 1, 2)


def test_a_sender_that_comes_between_look_and_removal_finds_its_packs(cloud, monkeypatch):
    one = three(cloud)
    cloud.damage("packs/0-9.pack", b"which 3 may count on")
    remove = Bucket.remove

    def late(bucket, key, deadline):
        remove(bucket, key, deadline)
        if key.endswith("/1/manifest.json"):
            cloud.damage(f"{leases.GUARD}3", b"")

    monkeypatch.setattr(Bucket, "remove", late)
    one.collection().expire(ID, [0, 1], ended=False)
    assert "packs/0-9.pack" in cloud.stored()
    assert "0/manifest.json" not in cloud.stored()


def test_a_node_at_work_on_it_refuses(cloud):
    one = three(cloud)
    one.store.uploads.under_way = (ID, 3)
    with pytest.raises(WrongState, match="being sent"):
        one.collection().expire(ID, [0], ended=False)
    one.store.uploads.under_way = None
    taken, done = threading.Event(), threading.Event()

    def hold():
        with one.store.cache.locked(ID):
            taken.set()
            done.wait()

    other = threading.Thread(target=hold)
    other.start()
    taken.wait()
    with pytest.raises(WrongState, match="read or written"):
        one.collection().expire(ID, [0], ended=False)
    done.set()
    other.join()
    whole(cloud, 0, 1, 2)
