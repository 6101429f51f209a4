"""Checkpoints on their way from a node to the remote place of the store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class UploadState(str, Enum):
    """`pending`: the node has the only copy. `uploaded`: it had, and the remote place has one now.
    `stored`: the remote place had it before it counted."""

    PENDING = "pending"
    UPLOADED = "uploaded"
    STORED = "stored"


@dataclass(frozen=True, slots=True)
class Upload:
    """Of the checkpoint of restart `restarts` of `session` (as text)."""

    session: str
    restarts: int
    state: UploadState
