"""Unit tests are in memory, also with their files, where there is such a place: the journal and
the store wait for the disk at every write."""

from __future__ import annotations

import gc
import os
from pathlib import Path

MEMORY = Path("/dev/shm")


def pytest_configure() -> None:
    if os.access(MEMORY, os.W_OK):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_finish() -> None:
    """What is loaded stays: the collector need not go through it again and again."""
    gc.collect()
    gc.freeze()
