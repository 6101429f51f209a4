"""A checkpoint as one archive that needs nothing else.

The names in it are those below `<store>/<cluster>/`, so that unpacking it there (tar -x, as root)
puts it back. Every byte is compared with the manifest on its way.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from slurm_reclaim.adapters.store.directory import PACKS
from slurm_reclaim.adapters.store.files import MANIFEST, fsync_directory
from slurm_reclaim.adapters.store.stock import Stock
from slurm_reclaim.errors import BadRequest, IntegrityError, NotManaged, OperationFailed
from slurm_reclaim.model.catalogue import CheckpointRef
from slurm_reclaim.model.checkpoint import Part
from slurm_reclaim.model.ids import SessionId


def find(stocks: Iterable[Stock], ref: CheckpointRef) -> tuple[Stock, SessionId, int]:
    """The checkpoint that `ref` names: of the newest session of that job. Raises NotManaged,
    BadRequest, StoreUnavailable."""
    found = [
        (stock, id, numbers) for stock in stocks for id, numbers in _matching(stock, ref).items()
    ]
    if not found:
        raise NotManaged(
            f"there is no checkpoint of {ref.session or f'job {ref.job_id}'} in the store"
        )
    if len({id.cluster for _, id, _ in found}) > 1:
        names = ", ".join(str(id) for _, id, _ in found)
        raise BadRequest(f"there are several: {names}", hint="name the session in full")
    stock, id, numbers = max(found, key=lambda each: each[1].submitted)
    restarts = max(numbers) if ref.restarts < 0 else ref.restarts
    if restarts not in numbers:
        raise NotManaged(f"{id} has no checkpoint {restarts}; it has {numbers}")
    return stock, id, restarts


def _matching(stock: Stock, ref: CheckpointRef) -> Mapping[SessionId, Sequence[int]]:
    stock.ready()
    found = stock.of_job(ref.job_id)
    return {id: found[id] for id in found if ref.session in ("", str(id))}


class _Hashing:
    """What is read from it is hashed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.hasher = blake3()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.hasher.update(data)
        return data


def export(stock: Stock, id: SessionId, restarts: int, target: Path) -> int:
    """Write the archive; its bytes. `target` must not exist, and is there only when it is whole
    and on the disk. Raises IntegrityError naming what is not as it was written, OperationFailed
    where `target` can't be written, StoreUnavailable."""
    stock.ready()
    if not target.name:
        raise OperationFailed(f"{target} can't be written: it is a directory")
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise OperationFailed(f"{target} can't be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            _write(stock, id, restarts, file)
            file.flush()
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        # A link and not a rename: it must not take the place of anything.
        os.link(draft, target)
        fsync_directory(target.parent)
        return size
    except OSError as error:
        raise OperationFailed(f"{target} can't be written: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)


def _write(stock: Stock, id: SessionId, restarts: int, file: io.BufferedWriter) -> None:
    with (
        stock.source(id, restarts) as source,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        manifest = source.manifest
        contents = manifest.contents
        place = f"{id.folder}/{restarts}"
        folders = {place, f"{id.folder}", *([f"{id.folder}/{PACKS}"] if manifest.packs else ())}
        for part in contents.parts:
            folders |= {f"{place}/{parent}" for parent in Path(part.path).parents if parent.name}
        for name in sorted(folders):
            _add_folder(tar, name, manifest.created)
        for part in contents.parts:
            with source.at_hand(part) as path:
                _add(tar, f"{place}/{part.path}", path, part, manifest.created, hashed=True)
        for part in manifest.packs:
            name = f"{id.folder}/{PACKS}/{part.path}"
            with source.at_hand(part) as path:
                _add(tar, name, path, part, manifest.created, hashed=False)
        # Last, as in the store: an archive that was cut short unpacks to no checkpoint.
        entry = _entry(f"{place}/{MANIFEST}", manifest.created)
        entry.size = len(source.sealed)
        tar.addfile(entry, io.BytesIO(source.sealed))


def _add(
    tar: tarfile.TarFile, name: str, path: Path, part: Part, at: float, *, hashed: bool
) -> None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise IntegrityError(f"{part.path} can't be read: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size != part.size:
            raise IntegrityError(f"{part.path} has {size} bytes instead of {part.size}")
        entry = _entry(name, at)
        entry.size = part.size
        content = _Hashing(file)
        tar.addfile(entry, content)
        if hashed and content.hasher.hexdigest() != part.digest:
            raise IntegrityError(f"{part.path} is not what was written")


def _add_folder(tar: tarfile.TarFile, name: str, at: float) -> None:
    entry = _entry(name, at)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o700
    tar.addfile(entry)


def _entry(name: str, at: float) -> tarfile.TarInfo:
    """Root's and private, wherever it is unpacked."""
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime = 0o600, int(at)
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
