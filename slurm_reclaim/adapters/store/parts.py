"""What the programs at the store know of the files that they read and write.

They start while a session waits for them, and import little: the model's Part is a dataclass, and
the import of dataclasses and of that model takes longer than all else that they do before their
first byte.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class PartOf(Protocol):
    """As model.checkpoint.Part has them."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def digest(self) -> str: ...


class FilePart(NamedTuple):
    """model.checkpoint.Part, for these programs."""

    path: str
    size: int
    digest: str
