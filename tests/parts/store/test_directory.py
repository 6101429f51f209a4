"""The checkpoint directory: private, whole or not there, honest about room."""

import os
import shutil
from pathlib import Path

import pytest

from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.seal import Seal
from slurm_reclaim.errors import StoreUnavailable
from slurm_reclaim.model.checkpoint import STORE_MARKER
from slurm_reclaim.model.ids import SessionId

ID = SessionId("lab", 7, 2001, 1000)


@pytest.fixture
def store(tmp_path):
    root = tmp_path / "store"
    root.mkdir(mode=0o700)
    (root / STORE_MARKER).touch()
    keys = KeyFile(tmp_path / "store.keys")
    keys.add(0)
    return DirectoryStore(root, "lab", tmp_path / "work", Seal(keys, root))


def test_a_store_that_others_can_read_is_refused(store):
    store.root.chmod(0o750)
    with pytest.raises(StoreUnavailable, match="0700"):
        store.check()


def test_a_missing_store_is_unavailable_and_not_empty(store):
    shutil.rmtree(store.root)
    with pytest.raises(StoreUnavailable):
        store.check()


def test_an_unmounted_store_is_not_taken_for_an_empty_one(store):
    (store.root / STORE_MARKER).unlink()
    for ask in (store.check, lambda: store.of_job(7, 2001)):
        with pytest.raises(StoreUnavailable, match="mounted"):
            ask()


def test_room_is_looked_for_before_anything_is_frozen(store):
    free = store.check()
    store.reserve(0)
    with pytest.raises(StoreUnavailable, match="needs up to"):
        store.reserve(2 * free)
    picky = DirectoryStore(store.root, "lab", store.root, store._seal, min_free=2 * free)
    with pytest.raises(StoreUnavailable, match="must stay free"):
        picky.reserve(0)


def test_a_directory_without_manifest_is_no_checkpoint(store):
    store.checkpoint_dir(ID, 0).mkdir(parents=True)
    assert store.committed(ID) == []
    assert store.of_job(7, 2001) == []


def test_only_the_same_job_and_owner_are_found(store):
    folder = store.checkpoint_dir(ID, 0)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    assert store.of_job(7, 2001) == [str(ID)]
    assert store.of_job(7, 2002) == []
    assert store.of_job(70, 2001) == []


def test_odd_names_in_the_store_are_nobodys(store):
    folder = store.checkpoint_dir(ID, 0)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    odd = ("\u00b2", "", "1.1", "0x1", "-1", "\udcff", "a\nb")
    for name in odd:
        (store.base / f"7.2001.{name}").mkdir()
    os.mkfifo(store.base / "7.2001.99")
    for name in ("\u00b2", "\u0663", "-1", "1 ", "x", ".replaced-\u00b2"):
        (folder.parent / name).mkdir()
    os.mkfifo(folder.parent / "5")
    assert store.of_job(7, 2001) == [str(ID)]
    assert store.committed(ID) == [0]


def test_only_what_is_staged_is_discarded(store, tmp_path, monkeypatch):
    """The path is in a record, which one from before an upgrade lacks: and the path "" is the
    agent's working directory, the root of its node."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "file").touch()
    monkeypatch.chdir(here)
    whole = store.staging(ID, 0).parent
    whole.mkdir(parents=True)
    for wrong in ("", ".", str(here), str(store.base), str(whole), str(whole / "0")):
        store.discard(Path(wrong))
    assert (here / "file").exists()
    assert whole.is_dir()
    staged = store.staging(ID, 0)
    staged.mkdir()
    store.discard(staged)
    assert not staged.exists()


def test_what_can_not_be_told_is_not_no(store):
    """A job whose checkpoint can't be looked at must not start from scratch (S10): here it is a
    loop of links, elsewhere a file server that is away."""
    folder = store.checkpoint_dir(ID, 0)
    folder.mkdir(parents=True)
    (folder / "manifest.json").symlink_to("manifest.json")
    for ask in (
        lambda: store.committed(ID),
        lambda: store.committed_here(ID, 0),
        lambda: store.of_job(7, 2001),
    ):
        with pytest.raises(StoreUnavailable, match="symbolic links"):
            ask()
    store.staging(ID, 1).symlink_to(store.staging(ID, 1).name)
    with pytest.raises(StoreUnavailable, match="symbolic links"):
        store.committed_here(ID, 1)


def test_a_marker_that_can_not_be_looked_at_is_not_missing(store):
    (store.root / STORE_MARKER).unlink()
    (store.root / STORE_MARKER).symlink_to(STORE_MARKER)
    with pytest.raises(StoreUnavailable, match="symbolic links"):
        store.of_job(7, 2001)


def test_a_checkpoint_that_can_not_be_looked_at_is_no_leftover(store):
    """It is shown with what is wrong with it, and hides no other."""
    for number in (0, 1):
        folder = store.checkpoint_dir(ID, number)
        folder.mkdir(parents=True)
        (folder / "manifest.json").symlink_to("manifest.json")
    found = Collection(store, "n1").stored(ID)
    assert [each.restarts for each in found.checkpoints] == [0, 1]
    assert all("symbolic link" in each.problem for each in found.checkpoints)
    assert found.leftovers == ()
