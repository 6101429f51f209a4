from __future__ import annotations

from pathlib import Path

import pytest

from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.seal import Seal
from slurm_reclaim.model.checkpoint import STORE_MARKER


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    file = KeyFile(tmp_path / "store.keys")
    file.add(0)
    return file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty store."""
    root = tmp_path / "store"
    root.mkdir(mode=0o700)
    (root / STORE_MARKER).touch()
    return root


@pytest.fixture
def seal(keys: KeyFile, root: Path) -> Seal:
    return Seal(keys, root)
