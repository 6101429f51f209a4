"""What holds for all tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What imports and collecting make stays to the end: to look through it again and again for
    garbage takes half of the time of collecting, and some of every test's."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
