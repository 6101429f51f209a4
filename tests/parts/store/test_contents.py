"""What goes into the store comes out of it, once, whole, and of nobody else."""

import os
import resource
import signal

import pytest

from slurm_reclaim.adapters.store import directory, publish
from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.adapters.store.frames import BLOCK, FRAME
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.seal import Seal
from slurm_reclaim.errors import IntegrityError, ReclaimError, StoreUnavailable
from slurm_reclaim.model.checkpoint import STORE_MARKER
from tests.parts.store.world import ID, OWNER, World


class Shop:
    def __init__(self, folder, encrypt=False):
        root = folder / "store"
        root.mkdir(mode=0o700)
        (root / STORE_MARKER).touch()
        keys = KeyFile(folder / "store.keys")
        keys.add(0)
        self.store = DirectoryStore(
            root, ID.cluster, folder / "work", Seal(keys, root), encrypt=encrypt
        )
        (folder / "world").mkdir()
        self.tree = World(folder / "world").tree

    def begin(self, number=0):
        return self.store.stage(ID, number, OWNER)

    def put(self, number, streams):
        staged = self.begin(number)
        try:
            for name, data in streams.items():
                with staged.receive(name) as pipe:
                    write_all(pipe, data)
            return self.commit(staged, number)
        finally:
            staged.close()

    def commit(self, staged, number):
        def describe(contents):
            manifest = self.tree.describe(staged, contents, "idle")
            return type(manifest)(**{
                name: getattr(manifest, name) for name in manifest.__dataclass_fields__
            } | {"restarts": number})  # fmt: skip

        return self.store.commit(staged, ID, number, describe)

    def get(self, number, name):
        opened = self.store.open(ID, number)
        try:
            with opened.send(name) as pipe:
                return b"".join(iter(lambda: pipe.read(1 << 20), b""))
        finally:
            opened.close()

    def stored(self):
        return {path.name: path.stat().st_size for path in self.store._packs(ID).iterdir()}


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def write_all(pipe, data):
    rest = memoryview(data)
    while rest:
        rest = rest[pipe.write(rest) :]


# A frame that is begun waits while whole ones pass it.
AMONG = os.urandom(7 * BLOCK) + bytes(FRAME - 7 * BLOCK) + os.urandom(3 * FRAME + 9 * BLOCK)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        bytes(BLOCK),
        bytes(5 * FRAME + 1),
        os.urandom(BLOCK),
        os.urandom(2 * FRAME + 5),
        b"the same " * FRAME,
        (b"page" * 1024) * 600 + os.urandom(3 * BLOCK) + bytes(FRAME) + b"end",
        AMONG,
    ],
    ids=["none", "byte", "zeros", "many zeros", "block", "random", "text", "mixed", "among"],
)
def test_it_comes_out_as_it_went_in(shop, data):
    shop.put(0, {"pages-1.img": data, "files.tar": data[::-1]})
    assert shop.get(0, "pages-1.img") == data
    assert shop.get(0, "files.tar") == data[::-1]
    shop.store.verify(ID, 0)


def test_zeros_and_what_is_there_already_take_no_room(shop):
    page = os.urandom(BLOCK)
    manifest = shop.put(0, {"pages-1.img": bytes(4 * FRAME) + page * 700})
    assert manifest.contents.raw == 4 * FRAME + 700 * BLOCK
    assert manifest.contents.stored < 3 * BLOCK


@pytest.mark.parametrize("first", [os.urandom(6 * FRAME), AMONG], ids=["frames", "among"])
def test_a_second_checkpoint_adds_what_is_new_wherever_it_moved(shop, first):
    shop.put(0, {"pages-1.img": first})
    second = os.urandom(3 * BLOCK) + first[5 * BLOCK :] + first[: 5 * BLOCK]
    manifest = shop.put(1, {"pages-1.img": second})
    assert manifest.contents.stored < 16 * BLOCK
    assert shop.get(1, "pages-1.img") == second
    assert shop.get(0, "pages-1.img") == first


def test_a_pack_goes_with_the_last_checkpoint_that_names_it(shop):
    first = os.urandom(2 * FRAME)
    shop.put(0, {"pages-1.img": first})
    shop.put(1, {"pages-1.img": first})
    collection = Collection(shop.store, "n1")
    collection.expire(ID, [0], ended=False)
    assert shop.get(1, "pages-1.img") == first
    assert len(shop.stored()) == 2
    collection.expire(ID, [1], ended=True)
    assert not shop.store.session_dir(ID).exists()


def test_a_pack_of_which_little_is_used_is_not_kept_for_it(shop):
    first = os.urandom(8 * FRAME)
    shop.put(0, {"pages-1.img": first})
    shop.put(1, {"pages-1.img": first[:FRAME]})
    manifest = shop.put(2, {"pages-1.img": first[:FRAME]})
    assert len(manifest.packs) == 1
    Collection(shop.store, "n1").expire(ID, [0, 1], ended=False)
    assert sum(shop.stored().values()) < 2 * FRAME
    assert shop.get(2, "pages-1.img") == first[:FRAME]


def test_a_last_checkpoint_that_is_damaged_is_not_built_upon(shop):
    data = os.urandom(FRAME)
    shop.put(0, {"pages-1.img": data})
    (shop.store.checkpoint_dir(ID, 0) / "index").write_bytes(b"?")
    shop.put(1, {"pages-1.img": data})
    assert shop.get(1, "pages-1.img") == data


def test_the_same_number_again_replaces_it(shop):
    """A session that was restored in place is saved anew under the number it had."""
    shop.put(0, {"pages-1.img": b"one"})
    shop.put(0, {"pages-1.img": b"two"})
    assert shop.get(0, "pages-1.img") == b"two"
    assert shop.store.committed(ID) == [0]


def test_a_commit_cut_off_between_two_names_leaves_the_old_one(shop, monkeypatch):
    shop.put(0, {"pages-1.img": b"one"})
    target = shop.store.checkpoint_dir(ID, 0)
    target.rename(publish.replaced(target))
    assert shop.store.committed(ID) == [0]
    assert shop.get(0, "pages-1.img") == b"one"


@pytest.mark.parametrize("where", ["session", "cluster", "packs"])
def test_a_commit_that_fails_at_its_last_step_leaves_the_old_one(shop, monkeypatch, where):
    shop.put(0, {"pages-1.img": b"one"})
    folder = {
        "session": shop.store.session_dir(ID),
        "cluster": shop.store.base,
        "packs": shop.store._packs(ID),
    }[where]
    real = publish.fsync_directory

    def failing(path):
        if path == folder:
            raise OSError(5, "Input/output error")
        real(path)

    monkeypatch.setattr(publish, "fsync_directory", failing)
    monkeypatch.setattr(directory, "fsync_directory", failing)
    with pytest.raises(StoreUnavailable):
        shop.put(0, {"pages-1.img": b"two"})
    monkeypatch.undo()
    assert shop.store.committed(ID) == [0]
    assert shop.get(0, "pages-1.img") == b"one"


def test_a_look_between_the_two_names_of_a_commit_disturbs_nothing(shop):
    shop.put(0, {"pages-1.img": b"one"})
    target = shop.store.checkpoint_dir(ID, 0)
    staging = target.with_name(".staging-0")
    staging.mkdir()
    target.rename(publish.replaced(target))
    assert shop.store.committed(ID) == []
    assert not target.exists()


def test_small_images_are_handed_over_for_a_look_and_to_be_changed(shop):
    staged = shop.begin()
    with staged.receive("core-1.img") as pipe:
        pipe.write(b"core")
    assert (staged.images / "core-1.img").read_bytes() == b"core"
    shop.commit(staged, 0)
    staged.close()
    opened = shop.store.open(ID, 0)
    opened.ready()
    assert (opened.images / "core-1.img").read_bytes() == b"core"
    assert opened.images.stat().st_mode & 0o777 == 0o700
    opened.close()
    assert not opened.work.exists()


def test_nobody_else_can_read_what_is_stored(shop):
    old = os.umask(0)
    try:
        shop.put(0, {"pages-1.img": b"secret"})
    finally:
        os.umask(old)
    for path in [shop.store.root, *shop.store.root.rglob("*")]:
        if path.name != STORE_MARKER:
            assert not path.stat().st_mode & 0o077, path


def test_a_program_that_is_killed_is_a_failure_and_not_a_wait(shop):
    staged = shop.begin()
    with pytest.raises(ReclaimError, match=r"killed|ended"), staged.receive("pages-1.img"):
        os.kill(staged._child.pid, signal.SIGKILL)
    staged.close()
    shop.store.discard(staged.folder)
    assert shop.store.committed(ID) == []


def test_a_full_disk_is_said(shop):
    """A limit on the size of files stands for it: the same error from the same call."""
    staged = shop.begin()
    resource.prlimit(staged._child.pid, resource.RLIMIT_FSIZE, (FRAME, FRAME))
    with pytest.raises(StoreUnavailable), staged.receive("pages-1.img") as pipe:
        write_all(pipe, os.urandom(40 * FRAME))
    staged.close()
    shop.store.discard(staged.folder)


def test_damage_anywhere_is_found_by_verify(shop):
    shop.put(0, {"pages-1.img": os.urandom(2 * FRAME), "core-1.img": b"core"})
    (pack,) = shop.store._packs(ID).iterdir()
    whole = pack.read_bytes()
    for at in range(0, len(whole), len(whole) // 23):
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        pack.write_bytes(damaged)
        with pytest.raises(IntegrityError):
            shop.store.verify(ID, 0)
    pack.write_bytes(whole)
    shop.store.verify(ID, 0)


@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory"])
def test_what_lies_in_the_place_of_a_pack_is_not_followed(shop, kind, tmp_path):
    shop.put(0, {"pages-1.img": b"data" * BLOCK})
    (pack,) = shop.store._packs(ID).iterdir()
    pack.rename(tmp_path / "elsewhere")
    if kind == "symlink":
        pack.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(pack)
    else:
        pack.mkdir()
    with pytest.raises(ReclaimError):
        shop.get(0, "pages-1.img")
