"""The store that the configuration means, and all of it as one that grows old.

What talks to an object store is imported where there is one: each node's agent would carry it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.options import read_options
from slurm_reclaim.adapters.store.seal import Seal
from slurm_reclaim.adapters.store.stock import Stock
from slurm_reclaim.config.schema import Store
from slurm_reclaim.errors import ConfigError

if TYPE_CHECKING:
    from slurm_reclaim.adapters.store.remote import RemoteStore

AnyStore: TypeAlias = "DirectoryStore | RemoteStore"

_PATIENCE = 30.0  # seconds


def store_of(settings: Store, cluster: str, work: Path, keys: KeyFile) -> AnyStore:
    """`work`: the agent's own directory for what is under way. Raises ConfigError,
    StoreUnavailable; no word goes out yet."""
    place = Path(settings.path)
    directory = DirectoryStore(
        place, cluster, work, Seal(keys, place), settings.min_free, encrypt=settings.encrypt
    )
    if not settings.remote:
        return directory
    try:
        options = read_options(settings.remote_options)
    except ValueError as error:
        raise ConfigError([f"store.remote_options: {error}"]) from None
    from slurm_reclaim.adapters.store.bucket import Bucket
    from slurm_reclaim.adapters.store.remote import RemoteStore

    bucket = Bucket(settings.remote, options)
    bucket.connect()
    return RemoteStore(
        directory,
        bucket,
        work,
        before=settings.upload == "before",
        timeout=settings.remote_timeout,
        min_free=settings.min_free,
    )


def remote_of(store: AnyStore) -> RemoteStore | None:
    """None where there is no object store."""
    return None if isinstance(store, DirectoryStore) else store


def directory_of(store: AnyStore) -> DirectoryStore:
    """The directory that this node works in."""
    return store if isinstance(store, DirectoryStore) else store.local


def stock_of(store: AnyStore, who: str) -> Stock:
    """All that any node may have put there. `who` asks on this node, unlike any other process."""
    if isinstance(store, DirectoryStore):
        return Collection(store, f"{who}-{os.getpid()}")
    from slurm_reclaim.adapters.store.remote_collection import RemoteCollection

    return RemoteCollection(store, who)


def stocks_of(settings: Store, cluster: str, work: Path) -> list[Stock]:
    """For the command line: of the cluster, or where it is not named of every one that has
    something there. Raises ConfigError, StoreUnavailable."""
    keys = KeyFile(Path(settings.keys))
    names = [cluster] if cluster else _clusters(store_of(settings, "any", work, keys))
    who = f"export-{os.uname().nodename}"
    return [stock_of(store_of(settings, name, work, keys), who) for name in names]


def _clusters(store: AnyStore) -> list[str]:
    stock_of(store, "export").ready()
    if isinstance(store, DirectoryStore):
        return sorted(path.name for path in store.root.iterdir() if path.is_dir())
    return list(store.bucket.folders(time.monotonic() + _PATIENCE))
