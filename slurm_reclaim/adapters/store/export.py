"""A checkpoint as one archive that needs nothing else.

The names in it are those below `<store>/<cluster>/`, so that unpacking it there (tar -x, as root)
puts it back. Every byte is compared with the manifest on its way.
"""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from blake3 import blake3

from slurm_reclaim.adapters.store.collection import Collection, difference, session_ids
from slurm_reclaim.adapters.store.directory import PACKS, DirectoryStore
from slurm_reclaim.adapters.store.files import MANIFEST, fsync_directory
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.seal import Seal
from slurm_reclaim.errors import BadRequest, IntegrityError, NotManaged, OperationFailed
from slurm_reclaim.model.catalogue import CheckpointRef
from slurm_reclaim.model.checkpoint import Part
from slurm_reclaim.model.ids import SessionId, parse_session_id


def opened(root: Path, keys: Path, cluster: str) -> DirectoryStore:
    """A store that is only read, with the node's keys."""
    return DirectoryStore(root, cluster, Path("/nonexistent"), Seal(KeyFile(keys), root))


def find(root: Path, keys: Path, ref: CheckpointRef, cluster: str = "") -> tuple[SessionId, int]:
    """The checkpoint that `ref` names, in the store that this host mounts: of the newest session
    of that job, of the cluster where there are several. Raises NotManaged, BadRequest,
    StoreUnavailable."""
    opened(root, keys, cluster or "any").check()
    if ref.session:
        ids = [parse_session_id(ref.session)]
    else:
        clusters = [cluster] if cluster else sorted(p.name for p in root.iterdir() if p.is_dir())
        every = (id for name in clusters for id in session_ids(root / name))
        ids = [id for id in every if id.job_id == ref.job_id]
    found = [(id, opened(root, keys, id.cluster).committed(id)) for id in ids]
    found = [(id, numbers) for id, numbers in found if numbers]
    if not found:
        raise NotManaged(
            f"there is no checkpoint of {ref.session or f'job {ref.job_id}'} in {root}"
        )
    if len({id.cluster for id, _ in found}) > 1:
        names = ", ".join(str(id) for id, _ in found)
        raise BadRequest(f"there are several: {names}", hint="name the session in full")
    id, numbers = max(found, key=lambda each: each[0].submitted)
    restarts = max(numbers) if ref.restarts < 0 else ref.restarts
    if restarts not in numbers:
        raise NotManaged(f"{id} has no checkpoint {restarts}; it has {numbers}")
    return id, restarts


class _Hashing(io.RawIOBase):
    """What is read from it is hashed."""

    def __init__(self, path: Path) -> None:
        self._file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
        self.hasher = blake3()
        self.size = os.fstat(self._file.fileno()).st_size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.hasher.update(data)
        return data

    def close(self) -> None:
        self._file.close()
        super().close()


def export(store: DirectoryStore, who: str, id: SessionId, restarts: int, target: Path) -> int:
    """Write the archive; its bytes. `target` must not exist, and is there only when it is whole
    and on the disk. Raises IntegrityError naming what is not as it was written, OperationFailed
    where `target` can't be written, StoreUnavailable."""
    store.check()
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise OperationFailed(f"{target} can't be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            _write(store, who, id, restarts, file)
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


def _write(
    store: DirectoryStore, who: str, id: SessionId, restarts: int, file: io.BufferedWriter
) -> None:
    collection = Collection(store, who)
    with (
        collection.reading(id),
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        manifest = store.read(id, restarts)
        contents = manifest.contents
        place = f"{id.folder}/{restarts}"
        folders = {place, f"{id.folder}", *([f"{id.folder}/{PACKS}"] if manifest.packs else ())}
        for part in contents.parts:
            folders |= {f"{place}/{parent}" for parent in Path(part.path).parents if parent.name}
        for name in sorted(folders):
            _add_folder(tar, name, manifest.created)
        for part in contents.parts:
            path = store.checkpoint_dir(id, restarts) / part.path
            _add(tar, f"{place}/{part.path}", path, part, manifest.created, hashed=True)
        for part in manifest.packs:
            # Its digest is that of its table, which holds those of all that is in it.
            if problem := difference(lambda p=part: store.check_pack(id, contents, p)):  # type: ignore[misc]
                raise IntegrityError(problem)
            path = store.session_dir(id) / PACKS / part.path
            name = f"{id.folder}/{PACKS}/{part.path}"
            _add(tar, name, path, part, manifest.created, hashed=False)
        # Last, as in the store: an archive that was cut short unpacks to no checkpoint.
        raw = (store.checkpoint_dir(id, restarts) / MANIFEST).read_bytes()
        entry = _entry(f"{place}/{MANIFEST}", manifest.created)
        entry.size = len(raw)
        tar.addfile(entry, io.BytesIO(raw))


def _add(
    tar: tarfile.TarFile, name: str, path: Path, part: Part, at: float, *, hashed: bool
) -> None:
    try:
        content = _Hashing(path)
    except OSError as error:
        raise IntegrityError(f"{part.path} can't be read: {error.strerror}") from error
    with content:
        if content.size != part.size:
            raise IntegrityError(f"{part.path} has {content.size} bytes instead of {part.size}")
        entry = _entry(name, at)
        entry.size = part.size
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
