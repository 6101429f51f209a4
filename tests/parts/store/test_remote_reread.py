"""Read again and exported from the remote place, whatever lies on the node; copies that go."""

import json
import os
import tarfile

import pytest

from slurm_reclaim.adapters.store import copies, leases, marks, reread
from slurm_reclaim.adapters.store.collection import READING, Collection
from slurm_reclaim.adapters.store.export import export, find
from slurm_reclaim.adapters.store.frames import FRAME
from slurm_reclaim.adapters.store.places import stocks_of
from slurm_reclaim.config.schema import Store
from slurm_reclaim.errors import IntegrityError, NotManaged, StoreUnavailable
from slurm_reclaim.model.catalogue import CheckpointRef
from slurm_reclaim.model.checkpoint import STORE_MARKER
from tests.parts.store.cloud import DATA, PREFIX, gets
from tests.parts.store.world import ID


def saved(cloud, **more):
    one = cloud.node("n1", **more)
    (pack,) = one.put(0, {"pages-1.img": DATA}).packs
    return one, pack


def flipped(data, at=FRAME):
    bad = bytearray(data)
    bad[at] ^= 1
    return bytes(bad)


def test_every_byte_is_read_from_there_and_not_from_the_copy(cloud):
    one, pack = saved(cloud)
    asked = len(cloud.proxy.requests)
    assert one.collection().verify(ID, 0) == []
    read = [path for method, path in cloud.proxy.requests[asked:] if method == "GET"]
    for name in (f"packs/{pack.path}", "0/index", "0/manifest.json"):
        assert any(path.endswith(name) for path in read), name
    assert not list(one.local.root.glob(".reread-*"))


@pytest.mark.parametrize("at", [10, FRAME, -40])
def test_one_bit_is_named(cloud, at):
    one, pack = saved(cloud)
    path = one.local.session_dir(ID) / "packs" / pack.path
    cloud.damage(f"packs/{pack.path}", flipped(path.read_bytes(), at))
    (found,) = one.collection().verify(ID, 0)
    assert pack.path in found
    cloud.damage(f"packs/{pack.path}", path.read_bytes())
    assert one.collection().verify(ID, 0) == []


def test_all_that_is_damaged_is_named(cloud):
    one, pack = saved(cloud)
    good = (one.local.session_dir(ID) / "packs" / pack.path).read_bytes()
    cloud.damage(f"packs/{pack.path}", good[:-1])
    cloud.damage("0/index", b"?" * len((one.local.checkpoint_dir(ID, 0) / "index").read_bytes()))
    index, data = one.collection().verify(ID, 0)
    assert index == "index is not what was written"
    assert data == f"packs/{pack.path} has {len(good) - 1} bytes instead of {len(good)}"
    cloud.damage(f"packs/{pack.path}", good + b"more")
    assert "bytes instead of" in one.collection().verify(ID, 0)[1]
    cloud.direct._fs.rm_file(f"{cloud.direct._root}/{PREFIX}packs/{pack.path}")
    assert one.collection().verify(ID, 0)[1] == f"packs/{pack.path} is missing"
    cloud.damage("0/manifest.json", b"{}")
    with pytest.raises(IntegrityError, match="not sealed"):
        one.collection().verify(ID, 0)
    with pytest.raises(IntegrityError, match="no committed checkpoint"):
        one.collection().verify(ID, 4)


@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 403}, {"short_down": True}])
def test_what_can_not_be_read_now_is_not_damaged(cloud, fault):
    one, _ = saved(cloud)
    cloud.proxy.fail(on=gets("/packs/"), **fault)
    with pytest.raises(StoreUnavailable):
        one.collection().verify(ID, 0)
    cloud.proxy.faults.clear()
    assert one.collection().verify(ID, 0) == []


def test_who_reads_says_so_while_it_reads_and_not_longer(cloud):
    one, _ = saved(cloud)
    with one.collection().source(ID, 0):
        words = [name for name in cloud.stored() if name.startswith(READING)]
        assert len(words) == 1
        assert words[0].startswith(f"{READING}{os.uname().nodename}-{os.getpid()}.")
    assert not [name for name in cloud.stored() if name.startswith(".")]
    cloud.node("n2").get(0, "pages-1.img")
    assert not [name for name in cloud.stored() if name.startswith(".")]


def test_without_room_for_a_word_it_is_read_all_the_same(cloud, monkeypatch):
    saved(cloud)
    monkeypatch.setattr(leases, "_PATIENCE", 1.0)
    cloud.proxy.fail(on=lambda method, path: method == "PUT" and READING in path, status=403)
    assert cloud.node("n2").get(0, "pages-1.img") == DATA


def test_what_a_killed_process_left_goes(cloud):
    one, _ = saved(cloud)
    dead, mine = f"{reread._PLACE}999999999-ab", f"{reread._PLACE}{os.getpid()}-ab"
    for name in (dead, mine):
        (one.local.root / name).mkdir()
    one.collection()
    assert [p.name for p in one.local.root.glob(".reread-*")] == [mine]


# -- export ------------------------------------------------------------------------------------


def test_an_export_is_the_same_archive_as_from_a_directory(cloud, tmp_path):
    one, _ = saved(cloud)
    two = cloud.node("n2")
    stock, id, restarts = find([two.collection()], CheckpointRef(7))
    assert (id, restarts) == (ID, 0)
    size = export(stock, id, restarts, tmp_path / "there.tar")
    assert export(Collection(one.local, "x"), ID, 0, tmp_path / "here.tar") == size
    assert (tmp_path / "there.tar").read_bytes() == (tmp_path / "here.tar").read_bytes()
    with tarfile.open(tmp_path / "there.tar") as tar:
        assert tar.getnames()[-1] == f"{ID.folder}/0/manifest.json"
    assert two.here() == []


def test_the_command_finds_it_without_the_name_of_the_cluster(cloud, tmp_path, monkeypatch):
    saved(cloud)
    two = cloud.node("n2")
    options = tmp_path / "remote.json"
    options.write_text(json.dumps(cloud.options(cloud.proxy.url)))
    options.chmod(0o600)
    settings = Store(
        path=str(two.local.root),
        keys=str(cloud.keys.path),
        remote=cloud.url,
        remote_options=str(options),
    )
    if os.geteuid() != 0:
        pytest.skip("the options must be root's")
    for cluster in ("", "lab"):
        stocks = stocks_of(settings, cluster, two.work)
        assert [stock.cluster for stock in stocks] == ["lab"]
        stock, id, restarts = find(stocks, CheckpointRef(7, str(ID), 0))
        assert (id, restarts) == (ID, 0)
        with stock.source(id, restarts) as source:
            assert source.manifest.session == str(ID)
    with pytest.raises(NotManaged, match="has no checkpoint 3"):
        find(stocks, CheckpointRef(7, "", 3))


def test_what_waits_for_its_upload_is_exported_on_its_node(cloud, tmp_path):
    one, two = cloud.node("n1", before=False), cloud.node("n2", before=False)
    one.put(0, {"pages-1.img": DATA})
    stock, id, restarts = find([one.collection()], CheckpointRef(7))
    assert export(stock, id, restarts, tmp_path / "a.tar") > 0
    with pytest.raises(NotManaged):
        find([two.collection()], CheckpointRef(7))


def test_a_damaged_one_is_not_exported(cloud, tmp_path):
    one, pack = saved(cloud)
    good = (one.local.session_dir(ID) / "packs" / pack.path).read_bytes()
    cloud.damage(f"packs/{pack.path}", flipped(good))
    with pytest.raises(IntegrityError, match=pack.path):
        export(one.collection(), ID, 0, tmp_path / "a.tar")
    assert list(tmp_path.glob("*.tar*")) == []


# -- copies on the node ------------------------------------------------------------------------


def remove(cloud, number):
    for key in cloud.direct.list(f"{PREFIX}{number}/", 10):
        cloud.direct._fs.rm_file(f"{cloud.direct._root}/{key}")


def test_the_copy_of_the_last_one_stays_for_a_while(cloud):
    """A remote place that has lost it looks no different."""
    one, _ = saved(cloud)
    remove(cloud, 0)
    assert one.store.copies.drop_deleted(10.0) == 0
    assert one.store.copies.drop_deleted(10.0 + copies.ABSENT_FOR - 1) == 0
    assert one.here() == [0]
    assert one.store.copies.drop_deleted(20.0 + copies.ABSENT_FOR + copies.EVERY) == 1
    assert one.here() == []


def test_one_that_is_back_is_absent_anew(cloud):
    one, _ = saved(cloud)
    raw = (one.local.checkpoint_dir(ID, 0) / "manifest.json").read_bytes()
    remove(cloud, 0)
    one.store.copies.drop_deleted(10.0)
    cloud.damage("0/manifest.json", raw)
    one.store.copies.drop_deleted(10.0 + copies.EVERY)
    remove(cloud, 0)
    assert one.store.copies.drop_deleted(20.0 + copies.ABSENT_FOR + copies.EVERY) == 0
    assert one.here() == [0]


def test_no_copy_goes_for_what_is_not_known(cloud):
    one, _ = saved(cloud)
    one.put(1, {"pages-1.img": DATA})
    remove(cloud, 0)
    cloud.proxy.fail(status=500)
    with pytest.raises(StoreUnavailable):
        one.store.copies.drop_deleted(10.0)
    cloud.proxy.faults.clear()
    one.store.bucket._quiet_until = 0.0
    cloud.direct._fs.rm_file(f"{cloud.direct._root}/{STORE_MARKER}")
    assert one.store.copies.drop_deleted(10.0 + copies.EVERY) == 0
    assert one.here() == [0, 1]


def test_neither_the_only_copy_nor_one_in_use_goes(cloud):
    one, _ = saved(cloud)
    one.put(1, {"pages-1.img": DATA})
    remove(cloud, 0)
    marks.write(one.local.checkpoint_dir(ID, 0), marks.Mark.PENDING)
    assert one.store.copies.drop_deleted(10.0) == 0
    marks.write(one.local.checkpoint_dir(ID, 0), marks.Mark.COPY)
    opened = one.store.open(ID, 0)
    assert one.store.copies.drop_deleted(10.0 + copies.EVERY) == 0
    opened.close()
    assert one.here() == [0, 1]
    assert one.store.copies.drop_deleted(10.0 + 2 * copies.EVERY) == 1
    assert one.here() == [1]
