"""A checkpoint gets its name when all of it is on the disk: the rename of its directory.

A session that was restored in place is saved again under the restart count it had, so that there
may be one of that name: it waits as `.replaced-N` while the new one takes its place.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from slurm_reclaim.adapters.store.files import MANIFEST, fsync_directory, is_number

STAGING = ".staging-"
REPLACED = ".replaced-"
# Seconds: far more than a commit needs from one rename to the next.
_BETWEEN_RENAMES = 60.0


def replaced(target: Path) -> Path:
    return target.with_name(f"{REPLACED}{target.name}")


def publish(staged: Path, target: Path) -> None:
    """The commit. After an OSError nothing is committed, and what was there before is there
    again."""
    if target.exists():
        shutil.rmtree(replaced(target), ignore_errors=True)
        target.rename(replaced(target))
    try:
        staged.rename(target)
        fsync_directory(target.parent)
    except OSError:
        _take_back(staged, target)
        raise
    shutil.rmtree(replaced(target), ignore_errors=True)


def _take_back(staged: Path, target: Path) -> None:
    if not staged.exists():
        (target / MANIFEST).unlink(missing_ok=True)
        target.rename(staged)
    if replaced(target).exists() and not target.exists():
        replaced(target).rename(target)


def heal(folder: Path, names: Sequence[str]) -> list[str]:
    """Give checkpoints of a session's `folder`, which holds `names`, their name back where a commit
    was cut off between its two renames; those names. One that is between them now is let alone."""
    healed = []
    for name in names:
        number = name.removeprefix(REPLACED)
        if number == name or not is_number(number) or number in names:
            continue
        if f"{STAGING}{number}" not in names or _is_old(folder / name):
            (folder / name).rename(folder / number)
            healed.append(number)
    return healed


def _is_old(path: Path) -> bool:
    """Whether it got its name some time ago."""
    return time.time() - path.stat().st_ctime > _BETWEEN_RENAMES
