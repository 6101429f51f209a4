"""A checkpoint from the remote place into the directory of this node, whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_reclaim.adapters.store import marks
from slurm_reclaim.adapters.store.answers import Held
from slurm_reclaim.adapters.store.bucket import Bucket
from slurm_reclaim.adapters.store.directory import PACKS, DirectoryStore
from slurm_reclaim.adapters.store.files import (
    INDEX,
    MANIFEST,
    fsync_directory,
    make_directory,
    read_part,
)
from slurm_reclaim.adapters.store.frames import FrameCodec
from slurm_reclaim.adapters.store.packs import PackReader
from slurm_reclaim.errors import BadRequest, IntegrityError, StoreUnavailable
from slurm_reclaim.model.checkpoint import Manifest, Part
from slurm_reclaim.model.ids import SessionId, parse_session_id

# Key -> what the remote place has there.
Listing = dict[str, Held]

MOST_MANIFEST = 256 << 20  # bytes: nothing larger was written by us
FETCHING = ".fetching-"
UPLOADING = ".uploading-"  # copies of the small files of a checkpoint that is being sent


@contextmanager
def answering(root: Path) -> Iterator[None]:
    """What the node's own directory does not do is StoreUnavailable, too."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"store {root}: {error.strerror or error}") from error


def is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def copy(folder: Path, other: Path) -> tuple[int, int]:
    """The files of a checkpoint beside it, where they stay what they are; its identity. No links:
    a manifest with two names is not believed. Raises OSError."""
    shutil.rmtree(other, ignore_errors=True)
    other.mkdir(mode=0o700)
    for name in (INDEX, MANIFEST, marks.MARK):
        shutil.copyfile(folder / name, other / name)
        (other / name).chmod(0o600)
    return identity(folder)


def identity(folder: Path) -> tuple[int, int]:
    """Another checkpoint in its place has another; (0, 0) where there is none. Raises OSError."""
    try:
        status = (folder / MANIFEST).stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns


def numbers(there: Listing) -> dict[str, set[int]]:
    """Session folder -> numbers that have a manifest."""
    found: dict[str, set[int]] = {}
    for key in there:
        parts = key.split("/")
        if parts[-1] == MANIFEST and len(parts) >= 3 and is_number(parts[-2]):
            found.setdefault(parts[-3], set()).add(int(parts[-2]))
    return found


def named(text: str) -> SessionId | None:
    try:
        return parse_session_id(text) if text.isascii() else None
    except BadRequest:
        return None


def sure(text: str) -> SessionId:
    return parse_session_id(text)


def index_key(session: SessionId, restarts: int, manifest: Manifest, there: Listing) -> str:
    """Where the index is to go: `index`, or beside one that another checkpoint of this number
    still counts on."""
    plain = f"{session}/{restarts}/{INDEX}"
    if f"{session}/{restarts}/{MANIFEST}" not in there:
        return plain
    return f"{plain}-{_index(manifest).digest[:16]}"


def index_there(session: SessionId, restarts: int, manifest: Manifest, there: Listing) -> str:
    """Where it is."""
    plain = f"{session}/{restarts}/{INDEX}"
    other = f"{plain}-{_index(manifest).digest[:16]}"
    return other if other in there else plain


def _index(manifest: Manifest) -> Part:
    return manifest.contents.parts[0]


def plain(manifest: Manifest) -> None:
    """Raises IntegrityError where a name in it would lead out of its directory."""
    for part in (*manifest.packs, _index(manifest)):
        if "/" in part.path or part.path.startswith("."):
            raise IntegrityError(f"{part.path!r} is no name that we give")


def missing(local: DirectoryStore, session: SessionId, manifest: Manifest) -> list[Part]:
    """Packs that are not here. What is here is compared when it is read."""
    folder = local.session_dir(session) / PACKS
    return [pack for pack in manifest.packs if _size(folder / pack.path) != pack.size]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def manifest(
    bucket: Bucket,
    local: DirectoryStore,
    session: SessionId,
    restarts: int,
    there: Listing,
    deadline: float,
) -> None:
    """Only the manifest, into the place it has here, marked as such. IntegrityError where there is
    none. Whether it is to be believed is seen when it is read."""
    key = f"{session}/{restarts}/{MANIFEST}"
    if key not in there:
        raise IntegrityError(f"there is no committed checkpoint {bucket.url}/{session}/{restarts}")
    if there[key].size > MOST_MANIFEST:
        raise IntegrityError(f"{bucket.url}/{key} is too large for a manifest")
    folder = local.session_dir(session) / f"{FETCHING}{restarts}"
    make_directory(local.base)
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        bucket.get(key, folder / MANIFEST, there[key].size, deadline)
        marks.begin(folder, marks.Mark.MANIFEST)
        target = local.checkpoint_dir(session, restarts)
        if target.exists():
            shutil.rmtree(target)
        folder.rename(target)
        fsync_directory(target.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def contents(
    bucket: Bucket,
    local: DirectoryStore,
    session: SessionId,
    manifest: Manifest,
    there: Listing,
    deadline: float,
) -> None:
    """What the manifest names, compared with it. Raises IntegrityError, OSError."""
    folder = local.checkpoint_dir(session, manifest.restarts)
    packs = local.session_dir(session) / PACKS
    packs.mkdir(mode=0o700, exist_ok=True)
    draft = folder / f".{INDEX}.part"
    part = _index(manifest)
    bucket.get(index_there(session, manifest.restarts, manifest, there), draft, part.size, deadline)
    draft.rename(folder / INDEX)
    read_part(folder, part)
    for pack in missing(local, session, manifest):
        draft = packs / f".{pack.path}.part"
        try:
            bucket.get(f"{session}/{PACKS}/{pack.path}", draft, pack.size, deadline)
            _compare(draft, pack)
            draft.rename(packs / pack.path)
        finally:
            draft.unlink(missing_ok=True)
    for directory in (packs, folder):
        fsync_directory(directory)


def _compare(path: Path, pack: Part) -> None:
    reader = PackReader(path, pack, FrameCodec())
    try:
        reader.compare()
    finally:
        reader.close()
