"""What the disk was told before a checkpoint counts: each new name, from the store's root down."""

import os

import pytest

from slurm_reclaim.adapters.store import seal
from tests.parts.store.test_contents import Shop
from tests.parts.store.world import ID


@pytest.fixture
def synced(monkeypatch):
    """What was synced, in order; and the names that were there in each directory then."""
    found = []
    real = os.fsync

    def fsync(fd):
        path = os.readlink(f"/proc/self/fd/{fd}")
        real(fd)
        found.append((path, frozenset(os.listdir(path)) if os.path.isdir(path) else None))

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def durable(synced, folder, name):
    return any(path == str(folder) and names and name in names for path, names in synced)


def test_the_first_checkpoint_of_a_cluster_has_a_way_down_to_it(tmp_path, synced):
    shop = Shop(tmp_path)
    shop.put(0, {"pages-1.img": b"one"})
    store = shop.store
    assert durable(synced, store.root, ID.cluster)
    assert durable(synced, store.base, ID.folder)
    assert durable(synced, store.session_dir(ID), "0")
    assert durable(synced, store.session_dir(ID), "packs")
    assert durable(synced, store.checkpoint_dir(ID, 0).with_name(".staging-0"), "manifest.json")


def test_the_stores_name_is_there_before_it_is_used(tmp_path, synced):
    """Another one after a power failure, and no seal of before would be believed."""
    shop = Shop(tmp_path)
    synced.clear()
    seal.store_id(shop.store.root)
    assert durable(synced, shop.store.root, seal.STORE_ID)


def test_what_an_agent_that_died_has_committed_is_there_for_good(tmp_path, synced):
    """It may have died between the rename and the sync; the next one kills the tree for it."""
    shop = Shop(tmp_path)
    shop.put(0, {"pages-1.img": b"one"})
    synced.clear()
    assert shop.store.committed_here(ID, 0)
    assert durable(synced, shop.store.session_dir(ID), "0")
    assert not shop.store.committed_here(ID, 1)
