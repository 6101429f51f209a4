"""A look at the remote place, for `reclaim check`."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from slurm_reclaim.adapters.store.bucket import Bucket
from slurm_reclaim.adapters.store.files import write_new
from slurm_reclaim.adapters.store.options import read_options
from slurm_reclaim.errors import StoreUnavailable
from slurm_reclaim.model.checkpoint import STORE_MARKER

_PATIENCE = 20.0


def probe(bucket: Bucket) -> tuple[float, float]:
    """Write, compare and remove a small object: the seconds that took, and how far the clock there
    is ahead of ours (0 where it does not tell). Raises StoreUnavailable."""
    began, deadline = time.monotonic(), time.monotonic() + _PATIENCE
    name = f".check-{os.urandom(6).hex()}"
    with tempfile.TemporaryDirectory(prefix="slurm-reclaim-") as place:
        path = Path(place, name)
        write_new(path, f"slurm-reclaim check {name}\n".encode())
        bucket.put(name, path, deadline)
        held = bucket.look(name, _PATIENCE)
        ahead = held.at - time.time() if held is not None and held.at else 0.0
        bucket.remove(name, deadline)
    return time.monotonic() - began, ahead


def look(url: str, options: str) -> tuple[float, float]:
    """The same of a place that was not used yet. Raises StoreUnavailable, ValueError (the options
    are not to be used)."""
    bucket = Bucket(url, read_options(options))
    found = probe(bucket)
    if not bucket.exists(STORE_MARKER, _PATIENCE):
        raise StoreUnavailable(
            f"there is no {STORE_MARKER} in {url}",
            hint=f"is store.remote right? In a new store, put an empty object {STORE_MARKER} there",
        )
    return found
