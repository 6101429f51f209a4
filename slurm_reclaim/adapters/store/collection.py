"""What is done to a store that has grown old: looked through, read again, thinned out, exported.

A deletion begins with one rename, `<N>` to `.expired-<N>`: from then on it is no checkpoint, and
whoever comes after an interruption knows what the rest is. Then its manifest goes, then its other
files; packs go last, and only those that no manifest of the session names any more. Two collectors
at once do no harm: each takes what is gone already for done.

Names that begin with a dot are ours: `.expired-<N>`, and `.reading-<who>` while a checkpoint is
read (`Collection.reading`), which holds off the deletion of anything in the session.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from collections.abc import Collection as Some
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from slurm_reclaim.adapters.store.directory import PACKS, DirectoryStore
from slurm_reclaim.adapters.store.files import MANIFEST, fsync_directory, is_number, read_part
from slurm_reclaim.adapters.store.publish import REPLACED, STAGING
from slurm_reclaim.adapters.store.stock import Source
from slurm_reclaim.adapters.store.walk import (
    bytes_below,
    extra,
    may_be_whole,
    names_in,
    packs_in,
    remove_directory,
)
from slurm_reclaim.errors import IntegrityError, StoreUnavailable, WrongState
from slurm_reclaim.model.catalogue import (
    StoredCheckpoint,
    StoredPart,
    StoredSession,
    is_older,
)
from slurm_reclaim.model.checkpoint import Manifest, Part
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.retention import EXPIRED

READING = ".reading-"
# A checkpoint that is being made, and one whose place is being taken (directory.py).
# A reader that has not said for this long that it still reads is taken for dead.
LEASE = 6 * 3600.0  # seconds
# A page of the catalogue: so many checkpoints and names of packs, so that a report can carry it.
PAGE = 20_000


class Collection:
    """One store as seen from one node. Raises StoreUnavailable where the file system says no."""

    def __init__(self, store: DirectoryStore, who: str) -> None:
        """`who` is this process, unlike any other that may use the store."""
        self._store = store
        self._who = who.replace("/", "_")
        self.cluster = store.base.name

    def ready(self) -> None:
        """See that it is a store and answers."""
        self._store.check()

    def of_job(self, job_id: int) -> dict[SessionId, list[int]]:
        """Sessions of this job that have checkpoints, with their restart counts."""
        ids = [id for id in session_ids(self._store.base) if id.job_id == job_id]
        found = {id: self._store.committed(id) for id in ids}
        return {id: numbers for id, numbers in found.items() if numbers}

    # -- looking ------------------------------------------------------------------------------

    def catalogue(self, after: str = "", most: int = PAGE) -> tuple[list[StoredSession], str]:
        """The sessions whose folder's name follows `after`, in order of these names, about `most`
        checkpoints and packs of them; and the name to go on after ("": these were the last)."""
        self._store.check()
        found: list[StoredSession] = []
        count, last = 0, after
        for name in sorted(names_in(self._store.base)):
            id = session_id(self._store.base.name, name)
            if id is None or name <= after:
                continue
            if count >= most:
                return found, last
            session = self.stored(id)
            count += 1 + len(session.packs) + sum(1 + len(c.packs) for c in session.checkpoints)
            last = name
            if session.checkpoints or session.packs or session.leftovers:
                found.append(session)
        return found, ""

    def stored(self, id: SessionId) -> StoredSession:
        folder = self._store.session_dir(id)
        numbers, left = [], []
        for name in sorted(names_in(folder)):
            if is_number(name) and may_be_whole(folder / name):
                numbers.append(int(name))
            elif is_number(name) or name.startswith((EXPIRED, STAGING, REPLACED)):
                left.append(folder / name)
        return StoredSession(
            session=str(id),
            checkpoints=tuple(self._checkpoint(id, number) for number in sorted(numbers)),
            packs=tuple(packs_in(folder / PACKS)),
            leftovers=tuple(path.name for path in left),
            leftover_bytes=sum(map(bytes_below, left)),
        )

    def _checkpoint(self, id: SessionId, restarts: int) -> StoredCheckpoint:
        try:
            manifest = self._store.read(id, restarts)
        except (IntegrityError, StoreUnavailable) as error:
            if isinstance(error, StoreUnavailable):
                self._store.check()  # where all is well it is this one file's trouble
            size = bytes_below(self._store.checkpoint_dir(id, restarts))
            return StoredCheckpoint(restarts, bytes=size, problem=error.message)
        return StoredCheckpoint(
            restarts=restarts,
            created=manifest.created,
            bytes=sum(part.size for part in manifest.contents.parts),
            packs=tuple(sorted(part.path for part in manifest.packs)),
            user=manifest.user,
            node=manifest.node,
            reason=manifest.reason,
        )

    def parts(self, id: SessionId, restarts: int) -> list[StoredPart]:
        """The files of a checkpoint, packs last. IntegrityError where there is none."""
        manifest = self._store.read(id, restarts)
        others = {n: set(p) for n, p in self._needed(id).items() if n != restarts and p is not None}
        found = [StoredPart(part.path, part.size) for part in manifest.contents.parts]
        for part in manifest.packs:
            name = part.path
            also = tuple(sorted(n for n, packs in others.items() if name in packs))
            found.append(StoredPart(f"{PACKS}/{name}", part.size, also))
        return found

    def _needed(self, id: SessionId) -> dict[int, list[str] | None]:
        """The packs that each committed checkpoint needs; None where that can't be told."""
        needed: dict[int, list[str] | None] = {}
        for number in self._store.committed(id):
            try:
                manifest = self._store.read(id, number)
                needed[number] = [part.path for part in manifest.packs]
            except IntegrityError:
                needed[number] = None
        return needed

    # -- reading again ------------------------------------------------------------------------

    def verify(self, id: SessionId, restarts: int) -> list[str]:
        """Read every byte again; what differs from the manifest, by name. IntegrityError where
        there is no checkpoint or its manifest can't be read."""
        with self.reading(id):
            manifest = self._store.read(id, restarts)
            folder = self._store.checkpoint_dir(id, restarts)
            differs = []
            for part in manifest.contents.parts:
                if problem := difference(lambda p=part: read_part(folder, p)):  # type: ignore[misc]
                    differs.append(problem)
            for part in manifest.packs:
                if problem := difference(lambda p=part: self._pack(id, manifest, p)):  # type: ignore[misc]
                    differs.append(problem)
            known = {part.path for part in manifest.contents.parts} | {MANIFEST}
            return differs + [f"{name} is not in the manifest" for name in extra(folder, known)]

    def _pack(self, id: SessionId, manifest: Manifest, part: Part) -> None:
        self._store.check_pack(id, manifest.contents, part)

    @contextmanager
    def source(self, id: SessionId, restarts: int) -> Iterator[Source]:
        """All of a checkpoint, for as long as one is inside. Raises IntegrityError."""
        with self.reading(id):
            manifest = self._store.read(id, restarts)
            sealed = (self._store.checkpoint_dir(id, restarts) / MANIFEST).read_bytes()
            yield Source(manifest, sealed, partial(self._at_hand, id, manifest))

    @contextmanager
    def _at_hand(self, id: SessionId, manifest: Manifest, part: Part) -> Iterator[Path]:
        if part in manifest.packs:
            # Its digest is that of its table, which holds those of all that is in it.
            if problem := difference(lambda: self._pack(id, manifest, part)):
                raise IntegrityError(problem)
            yield self._store.session_dir(id) / PACKS / part.path
        else:
            yield self._store.checkpoint_dir(id, manifest.restarts) / part.path

    @contextmanager
    def reading(self, id: SessionId) -> Iterator[None]:
        """While inside, no collector deletes anything of this session, wherever it runs. Where the
        store can't be written it is read without: the controller, too, keeps the two apart."""
        name = f"{READING}{self._who}.{secrets.token_hex(4)}"
        lease = self._store.session_dir(id) / name
        with suppress(OSError):
            lease.touch(mode=0o600)
        try:
            yield
        finally:
            with suppress(OSError):
                lease.unlink()

    # -- deleting -----------------------------------------------------------------------------

    def expire(self, id: SessionId, restarts: Some[int], *, ended: bool) -> int:
        """Delete these checkpoints, finish what an earlier deletion left, and drop the packs that
        nobody needs any more; of an `ended` session without further checkpoints, everything.
        Bytes freed. Raises WrongState where somebody reads the session, or for the newest
        checkpoint of a session that has not ended; nothing is deleted then."""
        self._store.check()
        with _answering(self._store.root):
            folder = self._store.session_dir(id)
            for place in (folder, folder / PACKS):
                if place.is_symlink():
                    raise IntegrityError(f"{place} is a symbolic link: nothing is deleted below it")
            if not folder.is_dir():
                return 0
            self._refuse(id, folder, restarts, ended)
            moved = self._set_aside(folder, restarts)
            if reader := self._reader(folder):
                # It came between the look and the rename.
                _put_back(folder, moved)
                raise WrongState(f"{id} is being read by {reader}")
            freed = sum(self._drop(folder / name) for name in names_in(folder) if _aside(name))
            committed = self._store.committed(id)
            if ended and not committed:
                freed += self._drop_rest(folder)
            elif committed:
                freed += self._drop_packs(id, folder)
            return freed

    def _refuse(self, id: SessionId, folder: Path, restarts: Some[int], ended: bool) -> None:
        committed = self._store.committed(id)
        if not ended and committed and max(committed) in restarts:
            raise WrongState(f"{id}: {max(committed)} is the newest checkpoint and may be needed")
        if reader := self._reader(folder):
            raise WrongState(f"{id} is being read by {reader}")

    def _reader(self, folder: Path) -> str:
        """Who reads something of this session now; "" for nobody. Ages are told by the file
        system's own clock."""
        leases = [name for name in names_in(folder) if name.startswith(READING)]
        if not leases:
            return ""
        probe = folder / f".clock-{self._who}"
        probe.touch(mode=0o600)
        now = probe.stat().st_mtime
        probe.unlink()
        for name in leases:
            with suppress(FileNotFoundError):
                if now - (folder / name).stat().st_mtime < LEASE:
                    return name.removeprefix(READING)
        return ""

    def _set_aside(self, folder: Path, restarts: Some[int]) -> list[int]:
        moved = []
        for number in sorted(restarts):
            aside = folder / f"{EXPIRED}{number}"
            if (folder / str(number)).is_dir() and (folder / f"{REPLACED}{number}").is_dir():
                # Else it would take the place again.
                self._drop(folder / f"{REPLACED}{number}")
            with suppress(FileNotFoundError):
                if (folder / str(number)).is_dir() and aside.exists():
                    # Left by a deletion of an earlier checkpoint of this number.
                    self._drop(aside)
                os.rename(folder / str(number), aside)
                moved.append(number)
        # Before anything that it needs is gone: after a power failure it must not be back.
        fsync_directory(folder)
        return moved

    def _drop(self, aside: Path) -> int:
        """Delete a directory that is no checkpoint any more, its manifest first; bytes freed. Of a
        link only the link goes."""
        if aside.is_symlink():
            aside.unlink(missing_ok=True)
            return 0
        size = bytes_below(aside)
        with suppress(FileNotFoundError):
            os.unlink(aside / MANIFEST)
        for base, folders, names in os.walk(aside, topdown=False):
            for name in names:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(base, name))
            for name in folders:
                remove_directory(os.path.join(base, name))
        remove_directory(aside)
        fsync_directory(aside.parent)
        return size

    def _drop_packs(self, id: SessionId, folder: Path) -> int:
        """Packs that no manifest names. A dump that is under way writes packs of a newer number
        than every committed checkpoint, and names them only when it is done: those stay. So do all
        while a checkpoint is between its two names (publish.py)."""
        needed = self._needed(id)
        done = {f"{REPLACED}{number}" for number in needed}
        between = any(n.startswith(REPLACED) and n not in done for n in names_in(folder))
        if between or None in needed.values():
            return 0
        wanted = {name for packs in needed.values() for name in packs or ()}
        newest = max(needed)
        freed = 0
        for pack in list(packs_in(folder / PACKS)):
            if pack.name not in wanted and is_older(pack.name, newest):
                with suppress(FileNotFoundError):
                    os.unlink(folder / PACKS / pack.name)
                    freed += pack.size
        return freed

    def _drop_rest(self, folder: Path) -> int:
        """All that is left of an ended session, packs last."""
        freed = 0
        for name in sorted(names_in(folder), key=lambda name: (name == PACKS, name)):
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                freed += self._drop(path)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(path)
        remove_directory(folder)
        fsync_directory(folder.parent)
        return freed


# -- the file system -----------------------------------------------------------------------------


@contextmanager
def _answering(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"store {root}: {error.strerror or error}") from error


def session_ids(base: Path) -> list[SessionId]:
    """Sessions that have a folder below `<store>/<cluster>`."""
    ids = (session_id(base.name, name) for name in sorted(names_in(base)))
    return [id for id in ids if id is not None]


def session_id(cluster: str, name: str) -> SessionId | None:
    parts = name.split(".")
    if len(parts) != 3 or not all(part.isdigit() and part.isascii() for part in parts):
        return None
    return SessionId(cluster, int(parts[0]), int(parts[1]), int(parts[2]))


def _aside(name: str) -> bool:
    return name.startswith(EXPIRED)


def _put_back(folder: Path, numbers: Some[int]) -> None:
    for number in numbers:
        os.rename(folder / f"{EXPIRED}{number}", folder / str(number))
    fsync_directory(folder)


def difference(read: Callable[[], object]) -> str:
    """What is wrong with a file, as a sentence that names it; "" where nothing is."""
    try:
        read()
    except IntegrityError as error:
        return error.message
    except OSError as error:
        # A disk that gives no answer for one file says something about that file.
        name = os.path.basename(str(error.filename or "a file"))
        return f"{name} can't be read: {error.strerror}"
    return ""
