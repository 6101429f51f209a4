"""A session that was saved very often, a little new each time."""

import os
from dataclasses import replace

import msgspec
import pytest
from blake3 import blake3

from slurm_reclaim.adapters.store import blocks, sharing
from slurm_reclaim.adapters.store.cipher import DataKey, cipher_of
from slurm_reclaim.adapters.store.frames import BLOCK, FrameCodec
from slurm_reclaim.adapters.store.packs import PackWriter
from slurm_reclaim.model.checkpoint import Contents, Part
from tests.parts.store.test_contents import Shop
from tests.parts.store.world import ID


def saved_often(shop, count, encrypt):
    """A checkpoint that needs a page of each of so many packs, as earlier versions made them."""
    place = shop.store._packs(ID)
    place.mkdir(parents=True, mode=0o700)
    pages, packs, keys, seed = [], [], [], 7
    for number in range(count):
        name = f"{number}-{number:08x}.pack"
        key = DataKey.new() if encrypt else None
        codec = FrameCodec(cipher=cipher_of(key.hex(), name) if key else None)
        writer = PackWriter(place / name, codec, 1)
        into = blocks.BlockWriter(writer, (), seed)
        stream = into.stream("pages-1.img", bulk=True)
        pages.append(os.urandom(BLOCK))
        into.write(stream, memoryview(pages[-1]))
        _, hashes = into.finish()
        packs.append(Part(*writer.finish(hashes)))
        keys.append(key.wrap(shop.store._seal.keys, str(ID)) if key else "")
    runs = [(number, 0, 1) for number in range(count)]
    stream = blocks.Stream("pages-1.img", count * BLOCK, True, runs)
    index = blocks.encode(blocks.Index(1, [pack.path for pack in packs], [stream]))
    folder = shop.store.checkpoint_dir(ID, count - 1)
    folder.mkdir(mode=0o700)
    contents = Contents(
        parts=(Part("index", len(index), blake3(index).hexdigest()),),
        keys=tuple(keys) if encrypt else (), packs=tuple(packs), seed=seed, raw=1, stored=1,
    )  # fmt: skip
    manifest = replace(shop.tree.describe(None, contents, "idle"), restarts=count - 1)
    sealed = shop.store._seal.seal(msgspec.json.encode(manifest), f"{ID}/{count - 1}")
    for name, data in (("index", index), ("manifest.json", sealed)):
        (folder / name).write_bytes(data)
        (folder / name).chmod(0o600)
    return b"".join(pages)


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_it_is_restored_and_saved_again(tmp_path, encrypt):
    shop, count = Shop(tmp_path, encrypt=encrypt), 900
    pages = saved_often(shop, count, encrypt)
    assert shop.get(count - 1, "pages-1.img") == pages
    manifest = shop.put(count, {"pages-1.img": pages})
    assert len(manifest.packs) == sharing.MOST_PACKS
    assert shop.get(count, "pages-1.img") == pages
