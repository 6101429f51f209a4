"""Checkpoints as they lie in a store, made without a dump."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from slurm_reclaim.adapters.store.directory import DirectoryStore, digest
from slurm_reclaim.model.checkpoint import STORE_MARKER, Credentials, Manifest, Needs, Part
from slurm_reclaim.model.ids import SessionId

ID = SessionId("lab", 7, 2001, 1000)


def new_store(place: Path) -> DirectoryStore:
    root = place / "store"
    root.mkdir(mode=0o700)
    (root / STORE_MARKER).touch()
    return DirectoryStore(root, "lab")


def commit(
    store: DirectoryStore,
    restarts: int,
    packs: Sequence[str] = (),
    id: SessionId = ID,
    files: Mapping[str, str] | None = None,
) -> Manifest:
    """A checkpoint with some files, and packs of the session, which are made where they are not
    there yet."""
    folder = store.checkpoint_dir(id, restarts)
    (folder / "images").mkdir(parents=True)
    names = files or {"images/core-300.img": f"core {restarts}", "files.tar": f"tar {restarts}"}
    parts = []
    for name, content in names.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
        parts.append(_part(folder / name, name))
    needed = []
    for name in packs:
        path = store.session_dir(id) / "packs" / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            path.write_text(f"pages of {name} " * 100)
        needed.append(_part(path, f"packs/{name}"))
    manifest = Manifest(
        version=1, session=str(id), restarts=restarts, job_id=id.job_id, uid=id.uid, gid=id.uid,
        user="alice", node="n1", created=1000.0 + restarts, reason="idle", root_pid=300,
        credentials=Credentials(id.uid, id.uid, (), 0, False), monotonic=0, boottime=0,
        seccomp=False, private_tmp=False, parts=tuple(parts), outputs=(),
        needs=Needs("x86_64", "6.1", "abc", "4.2.1", 310, 1 << 20), processes=3,
        packs=tuple(needed),
    )  # fmt: skip
    (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    return manifest


def _part(path: Path, name: str) -> Part:
    return Part(name, path.stat().st_size, digest(path))
