"""Files of the store, durable and compared."""

from __future__ import annotations

import os
from pathlib import Path

from blake3 import blake3

from slurm_reclaim.adapters.store.parts import PartOf
from slurm_reclaim.adapters.store.private import open_private
from slurm_reclaim.errors import IntegrityError

INDEX = "index"
MANIFEST = "manifest.json"


def is_number(name: str) -> bool:
    """`isdigit` alone knows digits of which `int` knows nothing."""
    return name.isascii() and name.isdigit()


def exists(path: Path) -> bool:
    """Whether it exists. Raises OSError where that can't be told: Path.exists says no then, for
    some errors, and from Python 3.14 on for all."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def fsync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(path: Path) -> None:
    """Root's, and there for good before anything in it counts; nothing where it is there."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return
    fsync_directory(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """A new file of root's, durable."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_part(folder: Path, part: PartOf) -> bytes:
    """A small part, compared with what was written: what is used is what was compared. Raises
    IntegrityError, StoreUnavailable, OSError."""
    try:
        fd = open_private(folder / part.path, what=part.path)
    except FileNotFoundError:
        raise IntegrityError(f"{part.path} is missing") from None
    with os.fdopen(fd, "rb") as file:
        data = file.read(part.size + 1)
    if len(data) != part.size or blake3(data).hexdigest() != part.digest:
        raise IntegrityError(f"{part.path} is not what was written")
    return data
