"""What is known of the copies on this node: a word beside each manifest, durable."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from slurm_reclaim.adapters.store.files import exists, write_new
from slurm_reclaim.adapters.store.records import write_durably
from slurm_reclaim.errors import StoreUnavailable
from slurm_reclaim.model.ids import SessionId, parse_session_id

log = logging.getLogger(__name__)

MARK = "remote"
_MOST = 64


class Mark(str, Enum):
    """`sending`: no checkpoint before all of it is at the remote place. `pending`: a checkpoint,
    and this node has the only copy. `uploaded`, `stored`: the remote place has it, after a wait or
    at once, and the controller has not heard of it yet. `copy`: it has. `manifest`: only that was
    fetched."""

    SENDING = "sending"
    PENDING = "pending"
    UPLOADED = "uploaded"
    STORED = "stored"
    COPY = "copy"
    MANIFEST = "manifest"


ELSEWHERE = frozenset({Mark.UPLOADED, Mark.STORED, Mark.COPY, Mark.MANIFEST})
WHOLE = frozenset({Mark.PENDING, Mark.UPLOADED, Mark.STORED, Mark.COPY})


def begin(folder: Path, mark: Mark) -> None:
    """Beside what is being staged: the rename that publishes it publishes both."""
    write_new(folder / MARK, mark.value.encode())


def read(folder: Path) -> Mark:
    """A checkpoint without a word is from before there was a remote place. Raises OSError."""
    try:
        fd = os.open(folder / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return Mark.PENDING
    with os.fdopen(fd, "rb") as file:
        word = file.read(_MOST).decode(errors="replace")
    try:
        return Mark(word)
    except ValueError:
        log.error("%s says %r, which is nothing we wrote; it is sent again", folder, word)
        return Mark.PENDING


def write(folder: Path, mark: Mark) -> None:
    """Raises StoreUnavailable."""
    try:
        write_durably(folder / MARK, mark.value.encode())
    except OSError as error:
        raise StoreUnavailable(f"{folder}: {error.strerror}") from error


def changed(folder: Path) -> float:
    """Unix seconds of the last word; 0 where there is none."""
    try:
        return (folder / MARK).stat().st_mtime
    except OSError:
        return 0.0


def sessions(base: Path) -> Iterator[SessionId]:
    """Those that have a directory here. Raises OSError."""
    for name in sorted(os.listdir(base)) if exists(base) else ():
        parts = name.split(".")
        if len(parts) == 3 and all(part.isascii() and part.isdigit() for part in parts):
            yield parse_session_id(f"{base.name}/{name}")
