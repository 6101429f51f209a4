"""What happened to a session, in order, with the reason a person can read."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` is stable kebab-case (a Fact, or a note such as `job-started-unmanaged`); `at` is
    Unix seconds; `before`/`after` are states and equal where nothing changed; `details` holds
    numbers and names for programs (bytes, seconds, node, blocker names)."""

    at: float
    kind: str
    reason: str
    session: str = ""
    job_id: int = 0
    uid: int = -1
    node: str = ""
    before: str = ""
    after: str = ""
    details: dict[str, str | int | float | list[str]] = field(default_factory=dict)
    seq: int = 0
