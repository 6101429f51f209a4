"""Packs of earlier checkpoints that a later one counts on stay, whatever happens meanwhile."""

import os

import pytest

from slurm_reclaim.adapters.store import publish
from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.adapters.store.frames import FRAME
from tests.parts.store.kept import packs
from tests.parts.store.stored import commit
from tests.parts.store.test_contents import Shop, write_all
from tests.parts.store.world import ID

FIRST, SECOND = os.urandom(2 * FRAME), os.urandom(2 * FRAME)


@pytest.fixture
def shop(tmp_path):
    """Two checkpoints that have nothing in common, the newest with an index that can't be read."""
    shop = Shop(tmp_path)
    shop.put(0, {"pages-1.img": FIRST})
    shop.put(1, {"pages-1.img": SECOND})
    index = shop.store.checkpoint_dir(ID, 1) / "index"
    shop.index = index.read_bytes()
    index.write_bytes(b"?")
    return shop


def mended(shop):
    """As after an error of the file system that has passed."""
    (shop.store.checkpoint_dir(ID, 1) / "index").write_bytes(shop.index)
    return Collection(shop.store, "n1")


def test_no_dump_counts_on_what_may_be_expired_meanwhile(shop):
    staged = shop.begin(2)
    with staged.receive("pages-1.img") as pipe:
        write_all(pipe, FIRST)
    mended(shop).expire(ID, [0], ended=False)
    shop.commit(staged, 2)
    staged.close()
    assert shop.get(2, "pages-1.img") == FIRST


def test_what_is_replaced_just_now_keeps_its_packs(store):
    """Between the two renames of a commit there is no checkpoint of that number. An earlier version
    built upon whichever checkpoint it could read, so that the one before need not name them all."""
    commit(store, 0, ["0-1.pack"])
    commit(store, 1, ["1-1.pack"])
    commit(store, 2, ["0-1.pack", "2-1.pack"])
    collection = Collection(store, "n1")
    collection.expire(ID, [0], ended=False)
    target = store.checkpoint_dir(ID, 2)
    staging = target.with_name(".staging-2")
    staging.mkdir()
    target.rename(publish.replaced(target))
    collection.expire(ID, [], ended=False)
    staging.rmdir()
    assert store.committed(ID) == [1, 2]
    assert collection.verify(ID, 2) == []
    commit(store, 3, ["3-1.pack"])
    collection.expire(ID, [2], ended=False)
    assert packs(store) == ["1-1.pack", "3-1.pack"], "and go when nobody names them"
