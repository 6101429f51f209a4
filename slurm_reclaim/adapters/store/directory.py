"""Checkpoints in a directory, shared by the nodes, that only root reads.

`<root>/<cluster>/<session>/<restart count>/`; the manifest is written last and by rename, so that
a directory without one is no checkpoint. Work in progress lives in `<root>/<cluster>/.staging/`.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
from blake3 import blake3

from slurm_reclaim.adapters.store.following import Follower
from slurm_reclaim.errors import IntegrityError, StoreUnavailable
from slurm_reclaim.model.checkpoint import MANIFEST_VERSION, STORE_MARKER, Manifest, Part
from slurm_reclaim.model.ids import SessionId

MANIFEST = "manifest.json"
_BLOCK = 4 << 20


@contextmanager
def _answering(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{what}: {error.strerror or error}") from error


def fsync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def digest(path: Path) -> str:
    """BLAKE3 of a file, hex. Read, never mapped: where the disk fails, or the file is cut short,
    a mapping ends the process with SIGBUS, a read says so."""
    hasher = blake3(max_threads=blake3.AUTO)
    buffer = bytearray(_BLOCK)
    with path.open("rb", buffering=0) as file:
        while got := file.readinto(buffer):
            hasher.update(memoryview(buffer)[:got])
    return str(hasher.hexdigest())


def _seal(staged: Path) -> list[Path]:
    """Everything below belongs to root from here on, directories first; the files. Raises
    IntegrityError for what is neither a directory nor a plain file of one name: CRIU, which wrote
    as the user, makes no such thing."""
    files = []
    for folder, _, _ in os.walk(staged):
        os.chown(folder, os.geteuid(), os.getegid())
        os.chmod(folder, 0o700)
        for name in sorted(os.listdir(folder)):
            path = Path(folder) / name
            if path.is_dir() and not path.is_symlink():
                continue
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                facts = os.fstat(fd)
                if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
                    raise IntegrityError(f"{name} is no plain file")
                os.fchown(fd, os.geteuid(), os.getegid())
                os.fchmod(fd, 0o600)
            finally:
                os.close(fd)
            files.append(path)
    return sorted(files)


def _sync_all(paths: Iterable[Path]) -> None:
    for path in paths:
        _sync(path)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _part(staged: Path, path: Path, followed: dict[str, Part]) -> Part:
    """Hashed while it was written, if it is as long now as it was then; else hashed now."""
    name, size = str(path.relative_to(staged)), path.stat().st_size
    known = followed.get(name)
    return known if known is not None and known.size == size else Part(name, size, digest(path))


class DirectoryStore:
    """Raises StoreUnavailable where the file system says no, IntegrityError where what it holds
    is not what was written."""

    def __init__(self, root: Path, cluster: str, min_free: int = 0) -> None:
        """`min_free`: bytes that must stay free after a dump."""
        self.root = root
        self._min_free = min_free
        self._followed: dict[Path, dict[str, Part]] = {}
        self.base = root / cluster

    def check(self) -> int:
        """Free bytes. Raises StoreUnavailable where the store is missing, not ours or not
        private."""
        with _answering(f"store {self.root}"):
            facts = os.stat(self.root)
            if not stat.S_ISDIR(facts.st_mode):
                raise StoreUnavailable(f"store {self.root} is not a directory")
            if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
                raise StoreUnavailable(
                    f"store {self.root} must belong to root with mode 0700",
                    hint=f"chown root: {self.root}; chmod 0700 {self.root}",
                )
            self._marked()
            space = os.statvfs(self.root)
            if space.f_files and not space.f_favail:
                raise StoreUnavailable(f"store {self.root} has no inode left")
            return space.f_bavail * space.f_frsize

    def _marked(self) -> None:
        if not (self.root / STORE_MARKER).exists():
            raise StoreUnavailable(
                f"{self.root} is no checkpoint store: there is no {STORE_MARKER} in it",
                hint=f"is it mounted? A new store is made with: touch {self.root}/{STORE_MARKER}",
            )

    def reserve(self, size: int) -> None:
        """See that there is room for `size` bytes more. Raises StoreUnavailable before anything is
        frozen, rather than half-way."""
        free = self.check()
        if free < size + self._min_free:
            raise StoreUnavailable(
                f"store {self.root} has {free >> 20} MiB free; this session needs up to "
                f"{size >> 20} MiB and {self._min_free >> 20} MiB must stay free",
                hint="make room in the store, or lower store.min_free",
            )

    def session_dir(self, session: SessionId) -> Path:
        return self.base / session.folder

    def checkpoint_dir(self, session: SessionId, restarts: int) -> Path:
        return self.session_dir(session) / str(restarts)

    def stage(self, session: SessionId, restarts: int) -> Path:
        """An empty directory to dump into, on the file system of the store."""
        with _answering(f"store {self.root}"):
            self.base.mkdir(mode=0o700, exist_ok=True)
            staging = self.base / ".staging"
            staging.mkdir(mode=0o700, exist_ok=True)
            path = staging / f"{session.folder}.{restarts}"
            if path.exists():
                shutil.rmtree(path)
            path.mkdir(mode=0o700)
        return path

    @contextmanager
    def follow(self, staged: Path) -> Iterator[None]:
        """While inside, the big files that appear in `staged` are hashed and synced as they grow;
        `commit` then need not read them again."""
        follower = Follower(staged)
        follower.start()
        try:
            yield
        finally:
            with _answering(f"store {self.root}"):
                self._followed[staged] = follower.finish()

    def discard(self, staged: Path) -> None:
        """Forget a staged checkpoint; never raises, since it is called on the way out."""
        self._followed.pop(staged, None)
        shutil.rmtree(staged, ignore_errors=True)

    def commit(
        self,
        staged: Path,
        session: SessionId,
        restarts: int,
        describe: Callable[[tuple[Part, ...]], Manifest],
    ) -> Manifest:
        """Hash, make durable and publish a staged checkpoint. Hashing and fsync run side by side:
        one is bound by the CPU, the other by the disk."""
        with _answering(f"store {self.root}"):
            files = _seal(staged)
            with ThreadPoolExecutor(2) as pool:
                syncing = pool.submit(_sync_all, files)
                followed = self._followed.pop(staged, {})
                parts = tuple(_part(staged, path, followed) for path in files)
                syncing.result()
            for folder in {path.parent for path in files} | {staged}:
                fsync_directory(folder)
            manifest = describe(parts)
            encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
            target = self.checkpoint_dir(session, restarts)
            target.parent.mkdir(mode=0o700, exist_ok=True)
            if target.exists():
                shutil.rmtree(target)
            staged.rename(target)
            fsync_directory(target.parent)
            fsync_directory(self.base)
            self._check_sizes(target, manifest)
            try:
                self._write_manifest(target, encoded)
            except OSError:
                # The caller goes on as if nothing had been committed, so nothing may be.
                (target / MANIFEST).unlink(missing_ok=True)
                raise
        return manifest

    def _write_manifest(self, target: Path, encoded: bytes) -> None:
        temporary = target / f"{MANIFEST}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(encoded)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(target / MANIFEST)
        fsync_directory(target)

    def _check_sizes(self, target: Path, manifest: Manifest) -> None:
        for part in manifest.parts:
            size = (target / part.path).stat().st_size
            if size != part.size:
                raise IntegrityError(f"{part.path} has {size} bytes, {part.size} were hashed")

    def read(self, session: SessionId, restarts: int) -> Manifest:
        """The manifest of a committed checkpoint. IntegrityError where there is none."""
        path = self.checkpoint_dir(session, restarts) / MANIFEST
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            raise IntegrityError(f"there is no committed checkpoint {path.parent}") from None
        except OSError as error:
            raise StoreUnavailable(f"{path}: {error.strerror}") from error
        try:
            manifest = msgspec.json.decode(raw, type=Manifest)
        except msgspec.MsgspecError as error:
            raise IntegrityError(f"{path}: {error}") from error
        if manifest.version != MANIFEST_VERSION:
            raise IntegrityError(f"{path}: manifest version {manifest.version} is not known")
        if manifest.session != str(session) or manifest.restarts != restarts:
            raise IntegrityError(
                f"{path} describes {manifest.session}, restart {manifest.restarts}"
            )
        return manifest

    def committed(self, session: SessionId) -> list[int]:
        """Restart counts with a committed checkpoint, oldest first."""
        try:
            names = os.listdir(self.session_dir(session))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreUnavailable(f"{self.session_dir(session)}: {error.strerror}") from error
        numbers = sorted(int(n) for n in names if n.isdigit())
        return [n for n in numbers if (self.checkpoint_dir(session, n) / MANIFEST).exists()]

    def of_job(self, job_id: int, uid: int) -> list[str]:
        """Sessions (as text) under this job id and uid that have a committed checkpoint. Raises
        StoreUnavailable where that can't be told."""
        with _answering(f"store {self.root}"):
            self._marked()
        try:
            names = os.listdir(self.base)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreUnavailable(f"{self.base}: {error.strerror}") from error
        found = []
        for name in names:
            parts = name.split(".")
            if parts[:2] == [str(job_id), str(uid)] and len(parts) == 3 and parts[2].isdigit():
                id = SessionId(self.base.name, job_id, uid, int(parts[2]))
                if self.committed(id):
                    found.append(str(id))
        return found

    def verify(self, folder: Path, manifest: Manifest, only: Collection[str] = ()) -> None:
        """Re-read every part, or `only` those, and compare. Raises IntegrityError naming the first
        that differs."""
        for part in manifest.parts:
            if only and part.path not in only:
                continue
            path = folder / part.path
            if path.is_symlink() or not path.is_file():
                raise IntegrityError(f"{part.path} is missing")
            if path.stat().st_size != part.size or digest(path) != part.digest:
                raise IntegrityError(f"{part.path} is not what was written")

    def delete(self, session: SessionId, restarts: int) -> None:
        """Delete one checkpoint: the manifest first, so that a crash leaves no half of one."""
        folder = self.checkpoint_dir(session, restarts)
        with _answering(f"store {self.root}"):
            (folder / MANIFEST).unlink(missing_ok=True)
            fsync_directory(folder)
            shutil.rmtree(folder)
