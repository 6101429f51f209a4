"""What is done to an old store: nothing that is needed is ever lost, wherever it is interrupted."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import Any

import pytest
from blake3 import blake3

from slurm_reclaim.adapters.store import collection as module
from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.errors import StoreUnavailable, WrongState
from slurm_reclaim.model.checkpoint import Contents, Manifest, Part
from slurm_reclaim.model.ids import SessionId
from tests.parts.store.kept import OTHER, packs, staged, three
from tests.parts.store.stored import ID, commit, make_pack


def test_the_catalogue_shows_what_is_there_and_what_it_shares(
    store: DirectoryStore, collection: Collection
) -> None:
    three(store)
    (store.base / "not ours").mkdir()
    staged(store, OTHER, 1)
    (mine, other), after = collection.catalogue()
    assert (mine.session, after) == (str(ID), "")
    assert [c.restarts for c in mine.checkpoints] == [0, 1, 2]
    assert mine.checkpoints[1].packs == ("0-1.pack", "1-1.pack")
    sizes = {pack.name: pack.size for pack in mine.packs}
    assert mine.alone(1) == mine.checkpoints[1].bytes + sizes["1-1.pack"]
    assert mine.bytes == sum(c.bytes for c in mine.checkpoints) + sum(sizes.values())
    assert other.leftovers == (".staging-1",)
    assert other.leftover_bytes == 4
    (_, _, shared, own) = collection.parts(ID, 1)
    assert (shared.path, shared.also, own.also) == ("packs/0-1.pack", (0, 2), ())


def test_a_large_catalogue_comes_in_pages(store: DirectoryStore, collection: Collection) -> None:
    ids = [SessionId("lab", job, 2001, 1000) for job in range(10, 17)]
    for id in ids:
        commit(store, 0, id=id)
    found: list[str] = []
    after = ""
    for _ in range(10):
        some, after = collection.catalogue(after, most=4)
        found += [one.session for one in some]
        if not after:
            break
    assert found == [str(id) for id in ids]


def test_an_unmounted_store_has_no_catalogue(store: DirectoryStore, collection: Collection) -> None:
    (store.root / ".slurm-reclaim-store").unlink()
    with pytest.raises(StoreUnavailable):
        collection.catalogue()
    with pytest.raises(StoreUnavailable):
        collection.expire(ID, [0], ended=True)


def test_only_packs_that_nobody_needs_go(store: DirectoryStore, collection: Collection) -> None:
    three(store)
    freed = collection.expire(ID, [0], ended=False)
    assert packs(store) == ["0-1.pack", "1-1.pack", "2-1.pack"]
    assert freed > 1000
    collection.expire(ID, [1], ended=False)
    assert packs(store) == ["0-1.pack", "2-1.pack"]
    assert store.committed(ID) == [2]
    assert collection.verify(ID, 2) == []
    assert collection.verify(OTHER, 0) == []


def test_a_dump_under_way_keeps_its_packs(store: DirectoryStore, collection: Collection) -> None:
    three(store)
    (store.session_dir(ID) / "packs" / "3-1.pack").write_text("not named yet")
    collection.expire(ID, [0], ended=False)
    assert "3-1.pack" in packs(store)


def test_no_pack_goes_where_a_manifest_can_not_be_read(
    store: DirectoryStore, collection: Collection
) -> None:
    three(store)
    (store.checkpoint_dir(ID, 1) / "manifest.json").write_text("{")
    collection.expire(ID, [0], ended=False)
    assert packs(store) == ["0-1.pack", "0-2.pack", "1-1.pack", "2-1.pack"]
    ((mine, _), _) = collection.catalogue()
    assert mine.checkpoints[0].problem
    assert mine.needed == {2}


def test_the_newest_of_a_session_that_lives_is_refused(
    store: DirectoryStore, collection: Collection
) -> None:
    three(store)
    with pytest.raises(WrongState, match="newest"):
        collection.expire(ID, [1, 2], ended=False)
    assert store.committed(ID) == [0, 1, 2]


def test_of_an_ended_session_nothing_is_left(store: DirectoryStore, collection: Collection) -> None:
    three(store)
    (store.checkpoint_dir(ID, 3) / "images").mkdir(parents=True)
    staged(store, ID, 4)
    collection.expire(ID, [0, 1], ended=True)
    assert store.committed(ID) == [2], "only what was named"
    collection.expire(ID, [2], ended=True)
    assert not store.session_dir(ID).exists()
    assert collection.verify(OTHER, 0) == []
    assert collection.expire(ID, [2], ended=True) == 0


def test_what_is_read_is_not_deleted(
    store: DirectoryStore, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    three(store)
    reader = Collection(store, "n2")
    with reader.reading(ID), pytest.raises(WrongState, match=r"being read by n2"):
        collection.expire(ID, [0, 1, 2], ended=True)
    assert store.committed(ID) == [0, 1, 2]
    # One that died long ago holds nothing off.
    lease = store.session_dir(ID) / ".reading-n3.gone"
    lease.touch()
    os.utime(lease, (0, 0))
    collection.expire(ID, [0, 1, 2], ended=True)
    assert not store.session_dir(ID).exists()


def test_a_reader_that_comes_in_the_last_moment_finds_its_checkpoint(
    store: DirectoryStore, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    three(store)
    reader, rename = Collection(store, "n2").reading(ID), os.rename

    def late(old: Any, new: Any) -> None:
        if not list(store.session_dir(ID).glob(".reading-*")):
            reader.__enter__()
        rename(old, new)

    monkeypatch.setattr(module.os, "rename", late)
    with pytest.raises(WrongState, match="being read"):
        collection.expire(ID, [0, 1, 2], ended=True)
    monkeypatch.undo()
    assert [collection.verify(ID, n) for n in store.committed(ID)] == [[], [], []]


class Staged:
    """A dump that has written all it had to."""

    def __init__(self, store: DirectoryStore, restarts: int, shared: Part) -> None:
        self.folder = store.session_dir(ID) / f".staging-{restarts}"
        self.folder.mkdir()
        (self.folder / "index").write_text("index")
        self._new = make_pack(self.folder / f"{restarts}-7.pack")
        index = Part("index", 5, blake3(b"index").hexdigest())
        self._contents = Contents((index,), (shared, self._new), 1, 4096, 0)

    def finish(self) -> Contents:
        return self._contents


def test_a_commit_looks_for_what_it_shares(store: DirectoryStore, collection: Collection) -> None:
    """Whatever took it away meanwhile: the session is not its image then."""
    three(store)
    manifest = store.read(ID, 2)
    shared = manifest.packs[0]

    def describe(contents: Contents) -> Manifest:
        return replace(manifest, restarts=3, contents=contents)

    (store.session_dir(ID) / "packs" / shared.path).rename(store.root / "away")
    with pytest.raises(StoreUnavailable):
        store.commit(Staged(store, 3, shared), ID, 3, describe)  # type: ignore[arg-type]
    assert store.committed(ID) == [0, 1, 2]
    (store.root / "away").rename(store.session_dir(ID) / "packs" / shared.path)
    shutil.rmtree(store.session_dir(ID) / ".staging-3")
    store.commit(Staged(store, 3, shared), ID, 3, describe)  # type: ignore[arg-type]
    assert collection.verify(ID, 3) == []


def test_what_made_room_for_a_newer_one_does_not_come_back(
    store: DirectoryStore, collection: Collection
) -> None:
    """A session that was restored in place is saved under the number it had; here the agent died
    before it could remove the older one."""
    three(store)
    shutil.copytree(store.checkpoint_dir(ID, 1), store.session_dir(ID) / ".replaced-1")
    collection.expire(ID, [0, 1], ended=False)
    assert store.committed(ID) == [2]


def test_a_manifest_that_the_disk_does_not_give_is_no_trouble_of_others(
    store: DirectoryStore, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    three(store)
    read = store.read

    def failing(id: SessionId, restarts: int) -> Manifest:
        if (id, restarts) == (ID, 1):
            raise StoreUnavailable("manifest.json: Input/output error")
        return read(id, restarts)

    monkeypatch.setattr(store, "read", failing)
    ((mine, other), _) = collection.catalogue()
    assert [bool(each.problem) for each in mine.checkpoints] == [False, True, False]
    assert not other.checkpoints[0].problem
    monkeypatch.setattr(store, "read", lambda *_: failing(ID, 1))
    (store.root / ".slurm-reclaim-store").unlink()
    with pytest.raises(StoreUnavailable, match=r"no \.slurm-reclaim-store"):
        collection.stored(ID)
