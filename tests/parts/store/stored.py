"""Checkpoints as they lie in a store, made without a dump."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from blake3 import blake3

from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.adapters.store.frames import BLOCK, FrameCodec
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.packs import HASH, PackWriter
from slurm_reclaim.adapters.store.seal import Seal
from slurm_reclaim.model.checkpoint import (
    MANIFEST_VERSION,
    STORE_MARKER,
    Contents,
    Credentials,
    Manifest,
    Needs,
    Part,
)
from slurm_reclaim.model.ids import SessionId

ID = SessionId("lab", 7, 2001, 1000)
_made: dict[Path, Part] = {}


def new_store(place: Path) -> DirectoryStore:
    root = place / "store"
    root.mkdir(mode=0o700)
    (root / STORE_MARKER).touch()
    keys = KeyFile(place / "store.keys")
    keys.add(0.0)
    return DirectoryStore(root, "lab", place / "work", Seal(keys, root))


def commit(
    store: DirectoryStore,
    restarts: int,
    packs: Sequence[str] = (),
    id: SessionId = ID,
    files: Mapping[str, str] | None = None,
) -> Manifest:
    """A checkpoint with some files, and packs of the session, which are made where they are not
    there yet. Its index leads nowhere: it is not to be restored."""
    folder = store.checkpoint_dir(id, restarts)
    folder.mkdir(parents=True)
    names = files or {"index": f"index {restarts}", "more": f"more {restarts}"}
    parts = []
    for name, content in names.items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o600)
        digest = blake3(content.encode()).hexdigest()
        parts.append(Part(name, len(content), digest))
    place = store.session_dir(id) / "packs"
    place.mkdir(exist_ok=True)
    needed = tuple(make_pack(place / name) for name in packs)
    manifest = Manifest(
        version=MANIFEST_VERSION, session=str(id), restarts=restarts, job_id=id.job_id, uid=id.uid,
        gid=id.uid, user="alice", node="n1", created=1000.0 + restarts, reason="idle", root_pid=300,
        credentials=Credentials(id.uid, id.uid, (), 0, False), monotonic=0, boottime=0,
        seccomp=False, private_tmp=False, contents=Contents(tuple(parts), needed, 1, 1 << 20, 0),
        outputs=(), needs=Needs("x86_64", "6.1", "4.2.1", 310, 1 << 20), processes=3,
    )  # fmt: skip
    sealed = store._seal.seal(msgspec.json.encode(manifest), f"{id}/{restarts}")
    (folder / "manifest.json").write_bytes(sealed)
    (folder / "manifest.json").chmod(0o600)
    return manifest


def make_pack(path: Path) -> Part:
    if not path.exists():
        writer = PackWriter(path, FrameCodec(), 1)
        number = writer.begin()
        writer.fill(number, path.name.encode().ljust(BLOCK, b"."))
        _made[path] = Part(*writer.finish(bytes(256 * HASH)))
    return _made[path]
