"""The memory of this process: what was needed for a moment goes back to the kernel."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress


def give_back() -> None:
    """glibc keeps what was freed between other things until somebody asks (malloc_trim(3)), and
    Python what refers to itself until much more has come."""
    gc.collect()
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
