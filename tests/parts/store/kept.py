"""Sessions of several checkpoints, as the tests of collections have them."""

from __future__ import annotations

import os
from pathlib import Path

from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.model.ids import SessionId
from tests.parts.store.stored import ID, commit

OTHER = SessionId("lab", 8, 2002, 1000)


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


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
