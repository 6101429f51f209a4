"""Looks into the directories of a store."""

from __future__ import annotations

import os
from collections.abc import Collection as Some
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from slurm_reclaim.adapters.store.files import MANIFEST, exists
from slurm_reclaim.errors import StoreUnavailable
from slurm_reclaim.model.catalogue import Pack


def names_in(folder: Path) -> list[str]:
    """What is in a directory; nothing where there is none. Raises StoreUnavailable."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreUnavailable(f"{folder}: {error.strerror}") from error


def packs_in(folder: Path) -> Iterator[Pack]:
    for name in sorted(names_in(folder)):
        with suppress(OSError):
            yield Pack(name, os.lstat(folder / name).st_size)


def remove_directory(path: str | Path) -> None:
    """A link in its place goes, too; what somebody else put there meanwhile stays."""
    try:
        os.rmdir(path)
    except NotADirectoryError:
        os.unlink(path)
    except FileNotFoundError:
        pass


def bytes_below(path: Path) -> int:
    total = 0
    for base, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(base, name)).st_size
    return total


def extra(folder: Path, known: Some[str]) -> list[str]:
    found = []
    for base, _, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(base, name), folder) for name in names]
    return sorted(name for name in found if name not in known)


def may_be_whole(folder: Path) -> bool:
    """Whether it has a manifest. What can't be told is none of what may be deleted."""
    try:
        return exists(folder / MANIFEST)
    except OSError:
        return True
