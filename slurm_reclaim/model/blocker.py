"""A named reason why a session can't be hibernated, or restored on a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Blocker:
    """`name` is stable kebab-case (io-uring, traced, outside-unix-peer...), `what` names the
    process or file, `hint` says what the owner or admin can do."""

    name: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


def details(blockers: Sequence[Blocker]) -> dict[str, str | int | float | list[str]]:
    """As an event tells of them: `hints` has one for each of `blockers`, "" where there is none."""
    return {"blockers": [b.name for b in blockers], "hints": [b.hint for b in blockers]}
