"""Image layers: built once, kept by a digest of what goes in, never half there.

A layer is a directory whose name carries the digest. It is built in a directory of its own and
renamed into place at the end, under a lock: a killed build leaves only a directory that nobody
takes for a layer, and of two labs started at once one builds and the other waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from reclaim_lab.errors import LabError
from reclaim_lab.places import cache_dir
from reclaim_lab.shell import say


def digest(*ingredients: object) -> str:
    text = json.dumps([platform.machine(), *ingredients], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextlib.contextmanager
def locked(path: Path, waiting_for: str) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for {waiting_for}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def place(kind: str, key: str) -> Path:
    return cache_dir() / "layers" / f"{kind}-{key}"


def ensure(
    kind: str, key: str, build: Callable[[Path], None], what: str, keep_days: float = 14.0
) -> Path:
    """The layer of this kind and key; `build` fills the directory `tree` of the one it gets."""
    there = place(kind, key)
    if there.is_dir():
        os.utime(there)
        return there
    with locked(cache_dir() / "locks" / kind, f"the build of {what}"):
        if there.is_dir():
            return there
        unfinished = cache_dir() / "building" / kind
        if unfinished.exists():
            shutil.rmtree(unfinished)  # of a build that was killed: we hold its lock
        unfinished.mkdir(parents=True)
        _check_filesystem(unfinished)
        say(f"building {what}")
        started = time.monotonic()
        build(unfinished)
        tree = unfinished / "tree"
        if not tree.is_dir():
            raise LabError(f"building {what} left nothing behind")
        there.parent.mkdir(parents=True, exist_ok=True)
        os.rename(tree, there)
        shutil.rmtree(unfinished, ignore_errors=True)
        say(f"built {what} in {time.monotonic() - started:.0f} s")
        _forget_old(kind, there, keep_days)
    return there


def _forget_old(kind: str, keep: Path, days: float) -> None:
    """Layers nobody has asked for in a while; a running lab asks at every `up`."""
    for old in keep.parent.glob(f"{kind}-*"):
        if old != keep and old.stat().st_mtime < time.time() - days * 86400:
            shutil.rmtree(old, ignore_errors=True)


def _check_filesystem(place: Path) -> None:
    """overlayfs can't write on another overlay: say so before minutes of building."""
    mounts = [line.split(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    on = max(
        (
            (before.split()[4], after.split()[0])
            for before, after in mounts
            if (str(place) + "/").startswith(before.split()[4].rstrip("/") + "/")
        ),
        key=lambda found: len(found[0]),
    )
    if on[1] == "overlay":
        raise LabError(
            f"{place} lies on an overlay, which can't carry another: "
            "set RECLAIM_LAB_CACHE and RECLAIM_LAB_STATE to directories on a disk"
        )
