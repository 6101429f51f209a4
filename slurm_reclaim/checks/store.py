"""The checkpoint store as a compute node sees it: private, durable, shared, with room."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slurm_reclaim.checks.host import Host, mode, others_may
from slurm_reclaim.checks.result import Check, Family
from slurm_reclaim.config.schema import Store
from slurm_reclaim.config.units import format_size
from slurm_reclaim.errors import StoreUnavailable
from slurm_reclaim.model.checkpoint import ROOT_REFUSED, STORE_MARKER

_FAMILY = Family("store")
_VOLATILE = {"tmpfs", "ramfs", "overlay"}
_ROOT_MAY = (
    "root must be able to write, rename and fsync there (on NFS: no_root_squash for the compute "
    "nodes)"
)
_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs"}


@dataclass(frozen=True, slots=True)
class Mount:
    point: str
    kind: str
    source: str


# Looks at the remote place by its URL and the path of its options: the seconds it took, and how
# far the clock there is ahead. Raises StoreUnavailable, ValueError.
Look = Callable[[str, str], tuple[float, float]]
_SKEW = 60.0


def judge(host: Host, store: Store, look: Look) -> list[Check]:
    status = host.stat(store.path)
    if status is None or not host.place(store.path).is_dir():
        return [
            _FAMILY.failed(
                "store", f"{store.path} is no directory here", f"install -d -m 0700 {store.path}"
            )
        ]
    if refused := _refused(host, store):
        return [refused]
    if others_may(status, 7) or status.st_uid != host.root_uid:
        private = _FAMILY.failed(
            "store private",
            f"{store.path} is {mode(status)}, uid {status.st_uid}",
            f"images hold users' memory and tokens: chown root:root {store.path}; "
            f"chmod 0700 {store.path}",
        )
    else:
        private = _FAMILY.ok("store private", f"{store.path} is 0700 and root's")
    return [
        private,
        _marked(host, store),
        kind(mount_of(host.read("/proc/self/mountinfo"), store.path), store.remote),
        _durable(host.place(store.path)),
        _room(host.place(store.path), store.min_free),
        *remote(store, look),
    ]


def remote(store: Store, look: Look) -> list[Check]:
    """Nothing where none is configured."""
    if not store.remote:
        return []
    name = "store remote"
    try:
        seconds, ahead = look(store.remote, store.remote_options)
    except ValueError as error:
        return [_FAMILY.failed("store remote options", str(error), "chown root, chmod 0600")]
    except StoreUnavailable as error:
        hint = error.hint or "is it reachable from this node?"
        return [_FAMILY.failed(name, error.message, hint)]
    took = f"an object was written, compared and removed in {seconds * 1000:.0f} ms"
    checks = [_FAMILY.ok(name, f"{store.remote}: {took}")]
    if abs(ahead) > _SKEW:
        checks.append(
            _FAMILY.warning(
                "store remote clock",
                f"its clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} ours",
                "it refuses requests when they differ by 15 min: set the node's clock",
            )
        )
    return checks


def _refused(host: Host, store: Store) -> Check | None:
    """Failed where root is not root there; whose file it makes is the file server's word for it.
    None where that can't be told: then the other checks say what is wrong."""
    name = "store as root"
    try:
        with tempfile.TemporaryFile(prefix=".check-", dir=host.place(store.path)) as made:
            owner = os.fstat(made.fileno()).st_uid
    except PermissionError:
        what = f"root of this node may not write to {store.path}"
        return _FAMILY.failed(name, what, ROOT_REFUSED)
    except OSError:
        return None
    if owner == os.geteuid():
        return None
    what = f"what root of this node writes to {store.path} belongs to uid {owner}"
    return _FAMILY.failed(name, what, ROOT_REFUSED)


def _marked(host: Host, store: Store) -> Check:
    marker = f"{store.path}/{STORE_MARKER}"
    try:
        os.stat(host.place(marker))
        return _FAMILY.ok("store marked", f"{STORE_MARKER} is there")
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        return _FAMILY.failed(
            "store marked", f"can't look into {store.path}: {error.strerror}", _ROOT_MAY
        )
    return _FAMILY.failed(
        "store marked",
        f"there is no {STORE_MARKER} in {store.path}",
        f"is the file system mounted? A new store is made with: touch {marker}",
    )


def mount_of(mountinfo: str, path: str) -> Mount | None:
    """The mount that holds `path`: the longest mount point above it, the last where several lie
    over each other."""
    best: Mount | None = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, after = left.split(), right.split()
        if len(fields) < 5 or len(after) < 2:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best.point)):
            best = Mount(point, after[0], after[1])
    return best


def kind(mount: Mount | None, remote: str = "") -> Check:
    """With a remote place the directory is the node's own, but it must not be lost at a reboot."""
    name = "store shared"
    if mount is not None and remote and mount.kind not in _VOLATILE:
        return _FAMILY.ok(name, f"{remote}, with {mount.kind} of this node before it")
    if mount is None:
        return _FAMILY.unchecked(name, "/proc/self/mountinfo does not show its mount")
    seen = f"{mount.kind} ({mount.source} on {mount.point})"
    if mount.kind in _VOLATILE:
        return _FAMILY.warning(
            name, seen, "checkpoints here are lost at a reboot; use a shared file system"
        )
    if mount.kind in _LOCAL:
        return _FAMILY.warning(
            name,
            seen,
            "on a local disk a session can only be restored on the node it came from; use a file "
            "system that every compute node mounts",
        )
    return _FAMILY.ok(name, seen)


def _durable(folder: Path) -> Check:
    """The steps of a commit: write, fsync, rename, fsync the directory."""
    name = "store durable"
    start = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix=".check-", dir=folder) as place:
            draft = Path(place, "draft")
            with draft.open("wb") as file:
                file.write(b"slurm-reclaim check\n")
                file.flush()
                os.fsync(file.fileno())
            draft.rename(Path(place, "final"))
            handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    except OSError as error:
        return _FAMILY.failed(
            name,
            f"can't be written durably: {error.strerror}",
            _ROOT_MAY,
        )
    spent = time.monotonic() - start
    return _FAMILY.ok(name, f"write, fsync and rename took {spent * 1000:.0f} ms")


def _room(folder: Path, least: int) -> Check:
    try:
        room = os.statvfs(folder)
    except OSError as error:
        return _FAMILY.failed("store room", f"is not told: {error.strerror}", _ROOT_MAY)
    free = room.f_bavail * room.f_frsize
    if room.f_files and not room.f_favail:
        return _FAMILY.failed("store room", "no free inodes", "expire or move checkpoints")
    return _FAMILY.judge(
        "store room",
        free > least,
        f"{free / (1 << 30):.1f} GiB free",
        f"store.min_free is {format_size(least)}: no session is dumped below it",
    )
