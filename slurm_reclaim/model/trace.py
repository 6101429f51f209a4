"""What a trace is made of: sessions, what was measured of them, and what is known to be true.

Times are Unix seconds. A session's own entry, its labels and its returns stand before its samples,
whose times only grow; see docs/trace.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_reclaim.model.sample import Sample

VERSION = 1


@dataclass(frozen=True, slots=True)
class Header:
    """`note`: for people, where the trace comes from. `by_session`: one session stands after the
    other; else all of them are in order of time, as a cluster saw them. `complete`: the labels
    and returns say all that there is to say, so that what they leave out did not happen."""

    cluster: str
    note: str = ""
    by_session: bool = False
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Watched:
    """A session as rules see it. `started`: when its first incarnation began (0: not known);
    `blockers`: why it can't be hibernated."""

    session: str
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    name: str = ""
    tres: str = ""
    node: str = ""
    started: float = 0.0
    blockers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    session: str
    sample: Sample


@dataclass(frozen=True, slots=True)
class Label:
    """From `begin` until before `end` the session was in use (`active`) or was not."""

    session: str
    begin: float
    end: float
    behaviour: str
    active: bool


@dataclass(frozen=True, slots=True)
class Return:
    """The owner came back."""

    session: str
    at: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """Some of a recording under way. `last`: the number to ask after next; `lost`: samples that
    were dropped before they were asked for; `sessions` those of the samples."""

    cluster: str
    last: int
    lost: int = 0
    sessions: tuple[Watched, ...] = ()
    samples: tuple[Measured, ...] = ()


Entry = Header | Watched | Measured | Label | Return
