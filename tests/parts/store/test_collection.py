"""What is done to an old store: nothing that is needed is ever lost, wherever it is interrupted."""

from __future__ import annotations

import os
import shutil
import signal
import tarfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from slurm_reclaim.adapters.store import collection as module
from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.adapters.store.export import export
from slurm_reclaim.errors import IntegrityError, OperationFailed, StoreUnavailable, WrongState
from slurm_reclaim.model.checkpoint import Contents, Manifest, Part
from slurm_reclaim.model.ids import SessionId
from tests.parts.store.stored import ID, commit, make_pack, new_store

OTHER = SessionId("lab", 8, 2002, 1000)


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return new_store(tmp_path)


@pytest.fixture
def collection(store: DirectoryStore) -> Collection:
    return Collection(store, "n1")


def three(store: DirectoryStore) -> None:
    """Three checkpoints that share packs, and one of a neighbour."""
    commit(store, 0, ["0-1.pack", "0-2.pack"])
    commit(store, 1, ["0-1.pack", "1-1.pack"])
    commit(store, 2, ["0-1.pack", "2-1.pack"])
    commit(store, 0, ["0-1.pack"], id=OTHER)


def staged(store: DirectoryStore, id: SessionId, restarts: int) -> None:
    """What a dump leaves that was killed."""
    place = store.session_dir(id) / f".staging-{restarts}"
    place.mkdir()
    (place / f"{restarts}-9.pack").write_text("half")


def packs(store: DirectoryStore, id: SessionId = ID) -> list[str]:
    return sorted(os.listdir(store.session_dir(id) / "packs"))


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


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda p: p.joinpath("2/index").unlink(), "index is missing"),
        (lambda p: p.joinpath("2/index").write_text("index 3"), "index is not what was"),
        (lambda p: p.joinpath("packs/2-1.pack").unlink(), "2-1.pack is missing"),
        (lambda p: p.joinpath("packs/2-1.pack").write_text(""), "2-1.pack has 0 bytes"),
        (lambda p: flip(p / "packs/2-1.pack", 3), "frame 0 of 2-1.pack is not what was"),
        (lambda p: flip(p / "packs/2-1.pack", -40), "the table of 2-1.pack is not what was"),
        (lambda p: p.joinpath("2/stray").write_text(""), "stray is not in the manifest"),
        (lambda p: (p.joinpath("packs/0-1.pack").unlink(),
                    p.joinpath("packs/0-1.pack").symlink_to("0-2.pack")),
         "0-1.pack is a symbolic link"),
    ],
)  # fmt: skip
def test_what_differs_is_named(
    store: DirectoryStore, collection: Collection, tmp_path: Path, spoil: Any, says: str
) -> None:
    three(store)
    spoil(store.session_dir(ID))
    (found,) = collection.verify(ID, 2)
    assert says in found
    with pytest.raises(IntegrityError) if "stray" not in says else _nothing():
        export(Collection(store, "n1"), ID, 2, tmp_path / "a.tar")
    if "stray" not in says:
        assert list(tmp_path.glob("*.tar*")) + list(tmp_path.glob(".*part")) == []


class _nothing:  # reads like pytest.raises
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_an_export_needs_nothing_else(
    store: DirectoryStore, collection: Collection, tmp_path: Path
) -> None:
    three(store)
    target = tmp_path / "out" / "7.tar"
    target.parent.mkdir()
    size = export(Collection(store, "n1"), ID, 1, target)
    assert target.stat().st_size == size
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as tar:
        names = tar.getnames()
        assert names[-1].endswith("/1/manifest.json"), "the commit comes last"
        assert f"{ID.folder}/packs/0-2.pack" not in names
        shutil.rmtree(store.base)
        store.base.mkdir()
        tar.extractall(store.base, filter="data")
    assert collection.verify(ID, 1) == []
    assert store.committed(ID) == [1]
    with pytest.raises(OperationFailed, match="can't be written"):
        export(Collection(store, "n1"), ID, 1, target)
    assert os.listdir(target.parent) == ["7.tar"], "what is there is never replaced"


# -- interruptions -------------------------------------------------------------------------------

EFFECTS = ("rename", "unlink", "rmdir", "fsync")


def dies_at(number: int, act: Callable[[], object]) -> bool:
    """Runs `act` in a process that is killed right before its effect `number` (twice that: right
    after); whether it died."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    count = 0
    try:
        for name in EFFECTS:
            real = getattr(os, name)

            def effect(*words: Any, real: Any = real, **named: Any) -> Any:
                nonlocal count
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1
                outcome = real(*words, **named)
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1
                return outcome

            setattr(module.os, name, effect)
        act()
    finally:
        os._exit(0)


@pytest.mark.parametrize(
    ("going", "ended", "left"),
    [((0,), False, [1, 2]), ((0, 1), False, [2]), ((1,), True, [0, 2]), ((0, 1, 2), True, [])],
)
def test_dying_anywhere_loses_nothing_and_is_taken_up(
    tmp_path: Path, going: tuple[int, ...], ended: bool, left: list[int]
) -> None:
    points = 0
    for number in range(1000):
        place = tmp_path / str(number)
        place.mkdir()
        store = new_store(place)
        three(store)
        staged(store, ID, 3)
        collection = Collection(store, "n1")
        died = dies_at(number, lambda: collection.expire(ID, going, ended=ended))  # noqa: B023
        for restarts in store.committed(ID):
            if restarts in left:
                assert collection.verify(ID, restarts) == [], f"died at {number}"
            else:
                assert restarts in going
        assert set(left) <= set(store.committed(ID)), f"died at {number}"
        assert collection.verify(OTHER, 0) == []
        # A second collector, whatever the first has left; it may still find the old catalogue.
        Collection(store, "n2").expire(ID, going, ended=ended)
        assert store.committed(ID) == left, f"died at {number}"
        found, _ = collection.catalogue()
        mine = [one for one in found if one.session == str(ID)]
        if left:
            named = {name for each in mine[0].checkpoints for name in each.packs}
            stray = {pack.name for pack in mine[0].packs} - named
            assert stray == set(), f"died at {number}"
            assert not [n for n in mine[0].leftovers if n.startswith(".expired")]
        else:
            assert mine == [], f"died at {number}"
        if not died:
            break
        points += 1
    assert points >= 15


@pytest.mark.parametrize(("going", "ended", "left"), [((0, 1), False, [2]), ((0, 1, 2), True, [])])
def test_two_collectors_at_once(
    tmp_path: Path, going: tuple[int, ...], ended: bool, left: list[int]
) -> None:
    """Each may find the other's work half done and say so, but nothing that stays is touched, and
    one more look ends it."""
    for number in range(15):
        place = tmp_path / str(number)
        place.mkdir()
        store = new_store(place)
        three(store)
        children = []
        for who in ("n1", "n2", "n3"):
            child = os.fork()
            if not child:
                with suppress(StoreUnavailable):
                    Collection(store, who).expire(ID, going, ended=ended)
                os._exit(0)
            children.append(child)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        collection = Collection(store, "n4")
        collection.expire(ID, going, ended=ended)
        assert store.committed(ID) == left
        assert [collection.verify(ID, n) for n in left] == [[] for _ in left]
        assert collection.verify(OTHER, 0) == []
        assert store.session_dir(ID).exists() is bool(left)


def test_an_expired_checkpoint_is_never_half_of_one(tmp_path: Path) -> None:
    """Whatever still counts as committed is whole, at every moment of its deletion."""
    for number in range(1000):
        place = tmp_path / str(number)
        place.mkdir()
        store = new_store(place)
        three(store)
        collection = Collection(store, "n1")
        died = dies_at(number, lambda: collection.expire(ID, (0, 1, 2), ended=True))  # noqa: B023
        if store.session_dir(ID).exists():
            for restarts in store.committed(ID):
                assert collection.verify(ID, restarts) == [], f"died at {number}"
        if not died:
            return
    raise AssertionError("it never came to its end")
