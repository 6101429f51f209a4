"""With store.encrypt no byte of a session lies in the store as it was, and all of it comes back."""

import os

import pytest

from slurm_reclaim.adapters.store.frames import BLOCK
from slurm_reclaim.errors import IntegrityError, SealBroken
from tests.parts.store.test_contents import Shop
from tests.parts.store.world import ID

SECRET = b"hunter2 is the password " * 200


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path, encrypt=True)


def everything(shop):
    found = [p for p in shop.store.root.rglob("*") if p.is_file()]
    assert len(found) > 3
    return b"".join(path.read_bytes() for path in found)


def test_nothing_of_it_can_be_read_and_all_comes_back(shop):
    data = os.urandom(3 * BLOCK)
    streams = {"pages-1.img": data + SECRET, "core-1.img": SECRET, "files.tar": data}
    manifest = shop.put(0, streams)
    assert len(manifest.contents.keys) == len(manifest.contents.packs) == 1
    stored = everything(shop)
    # random, so neither compressed nor there by chance; and what compresses to nothing
    for piece in (data[:16], data[-16:], b"hunter2"):
        assert piece not in stored
    for name, plain in streams.items():
        if name != "core-1.img":
            assert shop.get(0, name) == plain
    opened = shop.store.open(ID, 0)
    opened.ready()
    assert (opened.images / "core-1.img").read_bytes() == SECRET
    opened.close()
    shop.store.verify(ID, 0)


def test_a_second_checkpoint_shares_what_is_encrypted(shop):
    data = os.urandom(100 * BLOCK)
    first = shop.put(0, {"pages-1.img": data})
    second = shop.put(1, {"pages-1.img": data + SECRET})
    assert second.contents.stored < 20 * BLOCK
    names = [pack.path for pack in second.contents.packs]
    assert first.contents.packs[0].path in names
    assert all(second.contents.keys)
    assert len(set(second.contents.keys)) == 2
    assert shop.get(1, "pages-1.img") == data + SECRET


def test_a_rotation_keeps_what_was_there(shop):
    data = os.urandom(50 * BLOCK)
    shop.put(0, {"pages-1.img": data})
    keys = shop.store._seal.keys
    keys.add(0)
    again = shop.put(1, {"pages-1.img": data})
    newest = keys.sealing().id
    assert {text.partition(":")[0] for text in again.contents.keys} == {newest}
    assert shop.get(0, "pages-1.img") == shop.get(1, "pages-1.img") == data
    keys.path.write_text(keys.path.read_text().splitlines()[-1] + "\n")
    assert shop.get(1, "pages-1.img") == data
    with pytest.raises(SealBroken):
        shop.get(0, "pages-1.img")


def test_what_was_not_encrypted_is_not_built_upon(tmp_path):
    plain = Shop(tmp_path)
    data = os.urandom(50 * BLOCK)
    plain.put(0, {"pages-1.img": data})
    plain.store._encrypt = True
    second = plain.put(1, {"pages-1.img": data})
    assert len(second.contents.packs) == 1
    assert plain.get(0, "pages-1.img") == plain.get(1, "pages-1.img") == data
    plain.store._encrypt = False
    third = plain.put(2, {"pages-1.img": data})
    assert third.contents.stored < 5 * BLOCK, "what is encrypted may be shared by what is not"
    assert plain.get(2, "pages-1.img") == data


def test_a_changed_pack_is_refused(shop):
    shop.put(0, {"pages-1.img": os.urandom(50 * BLOCK)})
    (pack,) = shop.store._packs(ID).iterdir()
    raw = bytearray(pack.read_bytes())
    raw[1000] ^= 1
    pack.write_bytes(raw)
    with pytest.raises(IntegrityError):
        shop.store.verify(ID, 0)
