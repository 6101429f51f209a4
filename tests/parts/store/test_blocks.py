"""What is known of blocks that were stored before: within bounds, and still of use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_reclaim.adapters.store import blocks
from slurm_reclaim.adapters.store.blocks import BlockWriter
from slurm_reclaim.adapters.store.frames import BLOCK, FRAME, FRAME_BLOCKS, FrameCodec
from slurm_reclaim.adapters.store.packs import PackReader, PackWriter, open_pack

SEED = 7
MOST = 4 * FRAME_BLOCKS


def store(folder: Path, name: str, data: bytes, packs: list[PackReader]) -> PackReader:
    writer = PackWriter(folder / name, FrameCodec(), workers=2)
    known = BlockWriter(writer, packs, SEED)
    stream = known.stream("pages-1.img", bulk=True)
    for at in range(0, len(data), FRAME):
        known.write(stream, memoryview(data)[at : at + FRAME])
    _, hashes = known.finish()
    return open_pack(folder, writer.finish(hashes), "")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_MOST_KNOWN", MOST)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("frames", [3, 4, 5, 40])
def test_of_more_than_can_be_known_by_themselves_the_next_dump_finds_all(
    tmp_path: Path, frames: int
) -> None:
    """Moved by a block: found by one that is known, and then because they follow it."""
    first = os.urandom(frames * FRAME)
    pack = store(tmp_path, "first", first, [])
    second = store(tmp_path, "second", os.urandom(BLOCK) + first[:-BLOCK], [pack])
    # The one that is new, and those before the first that is known by itself.
    assert second.frames <= 1
    assert (tmp_path / "second").stat().st_size < FRAME // 4


@pytest.mark.usefixtures("few")
def test_no_more_is_known_by_itself_than_there_is_room_for(tmp_path: Path) -> None:
    packs = [store(tmp_path, str(n), os.urandom(6 * FRAME), []) for n in range(3)]
    known = blocks._Known(packs)
    assert MOST // 8 < len(known._at) <= MOST
    for _ in range(9):
        known.add_all((os.urandom(16) for _ in range(MOST)), range(MOST))
        assert MOST // 8 < len(known._at) <= MOST


def test_the_empty_places_of_a_frame_are_nobodys(tmp_path: Path) -> None:
    pack = store(tmp_path, "first", os.urandom(3 * BLOCK), [])
    assert len(pack.hashes()) > 3 * 16
    assert len(blocks._Known([pack])._at) == 3
