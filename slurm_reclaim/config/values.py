"""What settings are made of: kinds of values, and a field with its documentation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any, NewType

Seconds = NewType("Seconds", float)
Bytes = NewType("Bytes", int)
Path = NewType("Path", str)


def setting(
    default: Any,
    doc: str,
    *,
    choices: tuple[str, ...] = (),
    example: str = "",
    least: float | None = None,
    most: float | None = None,
) -> Any:
    """A dataclass field that carries its documentation and its bounds (in seconds or bytes for
    durations and sizes). Lists default to empty."""
    metadata = {"doc": doc, "choices": choices, "example": example, "least": least, "most": most}
    if isinstance(default, (list, dict)):
        kind = type(default)
        return field(default_factory=lambda: kind(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def nearest(word: str, known: Iterable[str]) -> str:
    """Which of those that are known was probably meant; empty where none is like it."""
    import difflib  # late: daemons whose settings are right never need it

    return next(iter(difflib.get_close_matches(word, list(known), 1)), "")
