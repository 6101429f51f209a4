"""Parts of a checkpoint as the remote place has them, whatever lies here: fetched, compared with
the manifest, used, and gone again."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from slurm_reclaim.adapters.store import fetch
from slurm_reclaim.adapters.store.answers import Held
from slurm_reclaim.adapters.store.directory import PACKS
from slurm_reclaim.adapters.store.files import read_part
from slurm_reclaim.adapters.store.remote import RemoteStore
from slurm_reclaim.errors import IntegrityError
from slurm_reclaim.model.checkpoint import Manifest, Part
from slurm_reclaim.model.ids import SessionId

_PLACE = ".reread-"


@contextmanager
def at_hand(
    store: RemoteStore, id: SessionId, manifest: Manifest, part: Part, names: Mapping[str, Held]
) -> Iterator[Path]:
    """A file of this node with the part, for as long as one is inside. `names`: what the remote
    place holds below the session. Raises IntegrityError naming what differs, StoreUnavailable."""
    packed = part in manifest.packs
    name = f"{PACKS}/{part.path}" if packed else _index(id, manifest, names)
    if name not in names:
        raise IntegrityError(f"{name} is missing")
    if names[name].size != part.size:
        raise IntegrityError(f"{name} has {names[name].size} bytes instead of {part.size}")
    store.reserve(part.size)
    folder = store.root / f"{_PLACE}{os.getpid()}-{secrets.token_hex(4)}"
    with fetch.answering(store.root):
        folder.mkdir(mode=0o700)
    try:
        path = folder / part.path
        store.bucket.get(f"{id}/{name}", path, part.size, time.monotonic() + store.timeout)
        if packed:
            store.local.check_pack(id, manifest.contents, part, folder)
        else:
            read_part(folder, part)
        yield path
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _index(id: SessionId, manifest: Manifest, names: Mapping[str, Held]) -> str:
    there = {f"{id}/{name}": held for name, held in names.items()}
    return fetch.index_there(id, manifest.restarts, manifest, there).removeprefix(f"{id}/")


def sweep(root: Path) -> None:
    """Remove what processes left that were killed. Raises nothing."""
    with suppress(OSError):
        for path in root.glob(f"{_PLACE}*"):
            pid = path.name.removeprefix(_PLACE).partition("-")[0]
            if pid.isdigit() and not Path("/proc", pid).exists():
                shutil.rmtree(path, ignore_errors=True)
