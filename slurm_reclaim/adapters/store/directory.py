"""Checkpoints in a directory, shared by the nodes, that only root reads.

`<root>/<cluster>/<session>/<restart count>/` and `<session>/packs/` (model/checkpoint.py says what
they hold). A checkpoint is prepared in `<session>/.staging-<restart count>/` and gets its name when
all of it is on the disk, so that one with a manifest is whole.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import msgspec

from slurm_reclaim import ports
from slurm_reclaim.adapters.store import blocks, publish
from slurm_reclaim.adapters.store.cipher import DataKey
from slurm_reclaim.adapters.store.files import (
    MANIFEST,
    exists,
    fsync_directory,
    is_number,
    make_directory,
    read_part,
    write_new,
)
from slurm_reclaim.adapters.store.packs import PackReader, open_pack
from slurm_reclaim.adapters.store.private import read_private
from slurm_reclaim.adapters.store.seal import Seal
from slurm_reclaim.adapters.store.sharing import worth_sharing
from slurm_reclaim.adapters.store.staging import Opened, Staging
from slurm_reclaim.errors import IntegrityError, ReclaimError, StoreUnavailable
from slurm_reclaim.model.checkpoint import (
    MANIFEST_VERSION,
    ROOT_REFUSED,
    STORE_MARKER,
    Contents,
    Credentials,
    Manifest,
    Part,
)
from slurm_reclaim.model.ids import SessionId

log = logging.getLogger(__name__)

_MOST_MANIFEST = 256 << 20
PACKS = "packs"


@contextmanager
def _answering(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{what}: {error.strerror or error}") from error


def _place(session: SessionId, restarts: int) -> str:
    """What a manifest is sealed for."""
    return f"{session}/{restarts}"


class DirectoryStore:
    """Raises StoreUnavailable where the file system says no, IntegrityError where what it holds
    is not what was written."""

    def __init__(
        self,
        root: Path,
        cluster: str,
        work: Path,
        seal: Seal,
        min_free: int = 0,
        level: int = 1,
        encrypt: bool = False,
    ) -> None:
        """`work`: a local directory of root's for what is under way; `min_free`: bytes that must
        stay free after a dump; `level`: zstd's; `encrypt`: what is written from now on."""
        self.root = root
        self._work = work
        self._seal = seal
        self._min_free = min_free
        self._level = level
        self._encrypt = encrypt
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
                    hint=f"chown root: {self.root}; chmod 0700 {self.root}; {ROOT_REFUSED}",
                )
            if not os.access(self.root, os.R_OK | os.W_OK | os.X_OK):
                raise StoreUnavailable(
                    f"store {self.root}: root of this node may not write to it", hint=ROOT_REFUSED
                )
            self._marked()
            self._seal.ready()
            space = os.statvfs(self.root)
            if space.f_files and not space.f_favail:
                raise StoreUnavailable(f"store {self.root} has no inode left")
            return space.f_bavail * space.f_frsize

    def _marked(self) -> None:
        if not exists(self.root / STORE_MARKER):
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

    def staging(self, session: SessionId, restarts: int) -> Path:
        return self.session_dir(session) / f"{publish.STAGING}{restarts}"

    def stage(
        self,
        session: SessionId,
        restarts: int,
        owner: Credentials,
        note: Callable[[int], None] = lambda _: None,
    ) -> Staging:
        """Begin a checkpoint: what arrives is stored, but for what the session's last one has
        already. CRIU runs as `owner`; `note` is told now and then how many bytes have arrived."""
        folder = self.staging(session, restarts)
        with _answering(f"store {self.root}"):
            make_directory(self.base)
            for directory in (self.session_dir(session), self._packs(session)):
                directory.mkdir(mode=0o700, exist_ok=True)  # durable with the commit
            shutil.rmtree(folder, ignore_errors=True)
            known, seed, secrets = self._shared(session)
            new = f"{restarts}-{os.urandom(4).hex()}.pack"
            if self._encrypt:
                secrets[new] = DataKey.new()
            orders = {
                "packs": str(self._packs(session)),
                "pack": new,
                "known": [asdict(pack) for pack in known],
                "keys": {name: key.hex() for name, key in secrets.items()},
                "seed": seed or int.from_bytes(os.urandom(8), "big"),
                "level": self._level,
            }
            wrap = self._wrapping(session, secrets)
            folder.mkdir(mode=0o700)
            try:
                return Staging(folder, self._work_of(folder), owner, orders, wrap, note)
            except BaseException:
                self.discard(folder)
                raise

    def _wrapping(self, session: SessionId, secrets: dict[str, DataKey]) -> Callable[[str], str]:
        """The key of a pack as it stands in a manifest."""

        def wrap(name: str) -> str:
            key = secrets.get(name)
            return "" if key is None else key.wrap(self._seal.keys, str(session))

        return wrap

    def _secrets(self, session: SessionId, contents: Contents) -> dict[str, DataKey]:
        """The keys of those packs that are encrypted. Raises SealBroken, KeyUnavailable."""
        return {
            pack.path: DataKey.unwrap(text, self._seal.keys, str(session))
            for pack, text in zip(contents.packs, contents.keys, strict=False)
            if text
        }

    def _shared(self, session: SessionId) -> tuple[tuple[Part, ...], int, dict[str, DataKey]]:
        """The packs of the last checkpoint, their seed and their keys. If it can't be read there is
        none: a collector may take an older one away meanwhile, with packs that the last does not
        name. Nor is built upon what is not encrypted and should be."""
        found = self.committed(session)
        if not found:
            return (), 0, {}
        try:
            contents = self.read(session, found[-1]).contents
            index = read_part(self.checkpoint_dir(session, found[-1]), contents.parts[0])
            secrets = self._secrets(session, contents)
            good = worth_sharing(
                contents, blocks.decode(index), None if not self._encrypt else secrets.keys()
            )
        except (ReclaimError, OSError) as error:
            log.warning("checkpoint %s of %s can't be built upon: %s", found[-1], session, error)
            return (), 0, {}
        names = {pack.path for pack in good}
        return good, contents.seed, {n: key for n, key in secrets.items() if n in names}

    def _packs(self, session: SessionId) -> Path:
        return self.session_dir(session) / PACKS

    def _work_of(self, folder: Path) -> Path:
        return self._work / folder.parent.name

    def discard(self, folder: Path) -> None:
        """Forget a staged checkpoint; never raises, since it is called on the way out. Nothing but
        what `staging` has named is deleted: of an empty path it would be the working directory."""
        if folder.parent.parent != self.base or not folder.name.startswith(publish.STAGING):
            log.error("%r is no place of a staged checkpoint, and is let alone", str(folder))
            return
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self._work_of(folder), ignore_errors=True)

    def commit(
        self,
        staged: ports.Staging,
        session: SessionId,
        restarts: int,
        describe: Callable[[Contents], Manifest],
    ) -> Manifest:
        """Make a staged checkpoint durable and publish it. What was hashed on its way to the disk
        is not read again. The rename of its directory is the commit."""
        contents = staged.finish()
        with _answering(f"store {self.root}"):
            manifest = describe(contents)
            new = contents.packs[-1]
            self._check_sizes(staged.folder, [*contents.parts, new])
            # What it shares is still there: S1 must not hang on the collector's care alone.
            self._check_sizes(self._packs(session), contents.packs[:-1])
            sealed = self._seal.seal(msgspec.json.encode(manifest), _place(session, restarts))
            self._write_manifest(staged.folder, sealed)
            (staged.folder / new.path).rename(self._packs(session) / new.path)
            fsync_directory(self._packs(session))
            fsync_directory(self.base)
            # Nothing that can fail comes after it: the caller would go on with a session that
            # counts as saved.
            publish.publish(staged.folder, self.checkpoint_dir(session, restarts))
        return manifest

    def _write_manifest(self, folder: Path, encoded: bytes) -> None:
        write_new(folder / f"{MANIFEST}.tmp", encoded)
        (folder / f"{MANIFEST}.tmp").rename(folder / MANIFEST)
        fsync_directory(folder)

    def _check_sizes(self, folder: Path, parts: Iterable[Part]) -> None:
        for part in parts:
            size = (folder / part.path).stat().st_size
            if size != part.size:
                raise IntegrityError(f"{part.path} has {size} bytes, {part.size} were written")

    def open(self, session: SessionId, restarts: int) -> Opened:
        """A committed checkpoint to be restored from. Raises IntegrityError."""
        manifest = self.read(session, restarts)
        folder = self.checkpoint_dir(session, restarts)
        with _answering(f"store {self.root}"):
            work = self._work_of(folder)
            secrets = self._secrets(session, manifest.contents)
            keys = {name: key.hex() for name, key in secrets.items()}
            return Opened(folder, self._packs(session), work, manifest, keys)

    def read(self, session: SessionId, restarts: int) -> Manifest:
        """The manifest of a committed checkpoint. IntegrityError where there is none."""
        path = self.checkpoint_dir(session, restarts) / MANIFEST
        try:
            sealed = read_private(path, _MOST_MANIFEST)
        except FileNotFoundError:
            raise IntegrityError(f"there is no committed checkpoint {path.parent}") from None
        return self.believed(sealed, session, restarts, str(path))

    def believed(self, sealed: bytes, session: SessionId, restarts: int, where: str) -> Manifest:
        """What a sealed manifest says, which was found at `where`. Raises IntegrityError."""
        raw = self._seal.open(sealed, _place(session, restarts))
        try:
            manifest = msgspec.json.decode(raw, type=Manifest)
        except msgspec.MsgspecError as error:
            raise IntegrityError(f"{where}: {error}") from error
        if manifest.version != MANIFEST_VERSION:
            raise IntegrityError(f"{where}: manifest version {manifest.version} is not known")
        if manifest.session != str(session) or manifest.restarts != restarts:
            raise IntegrityError(
                f"{where} describes {manifest.session}, restart {manifest.restarts}"
            )
        return manifest

    def committed(self, session: SessionId) -> list[int]:
        """Restart counts with a committed checkpoint, oldest first."""
        folder = self.session_dir(session)
        try:
            names = os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreUnavailable(f"{folder}: {error.strerror}") from error
        with _answering(f"store {self.root}"):
            names += publish.heal(folder, names)
            numbers = sorted(int(n) for n in names if is_number(n))
            return [n for n in numbers if exists(self.checkpoint_dir(session, n) / MANIFEST)]

    def committed_here(self, session: SessionId, restarts: int) -> bool:
        """Whether what this node dumped under this number was committed, for good. An older one of
        the same number is not it: what was staged takes its place by a rename."""
        with _answering(f"store {self.root}"):
            if exists(self.staging(session, restarts)) or restarts not in self.committed(session):
                return False
            # The agent that renamed it may have died before the disk had it.
            fsync_directory(self.session_dir(session))
        return True

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
            if parts[:2] == [str(job_id), str(uid)] and len(parts) == 3 and is_number(parts[2]):
                id = SessionId(self.base.name, job_id, uid, int(parts[2]))
                if self.committed(id):
                    found.append(str(id))
        return found

    def verify(self, session: SessionId, restarts: int) -> Manifest:
        """Re-read every byte that the checkpoint needs and compare. Raises IntegrityError naming
        the first that differs."""
        manifest = self.read(session, restarts)
        with _answering(f"store {self.root}"):
            index = blocks.decode(
                read_part(self.checkpoint_dir(session, restarts), manifest.contents.parts[0])
            )
            packs = {pack.path: pack for pack in manifest.packs}
            secrets = self._secrets(session, manifest.contents)
            readers = []
            try:
                for name in index.packs:
                    if name not in packs:
                        raise IntegrityError(f"the manifest does not name the pack {name}")
                    readers.append(self._reader(session, packs[name], secrets.get(name)))
                for stream in index.streams:
                    for _ in blocks.read(stream, readers):
                        pass
            finally:
                for reader in readers:
                    reader.close()
        return manifest

    def check_pack(
        self, session: SessionId, contents: Contents, pack: Part, folder: Path | None = None
    ) -> None:
        """Re-read all of one pack that a checkpoint of these contents needs, where `folder` is
        given there. IntegrityError, OSError."""
        key = self._secrets(session, contents).get(pack.path)
        place = folder or self._packs(session)
        with closing(open_pack(place, pack, key.hex() if key else "")) as reader:
            reader.verify()

    def _reader(self, session: SessionId, pack: Part, key: DataKey | None) -> PackReader:
        return open_pack(self._packs(session), pack, key.hex() if key else "")
