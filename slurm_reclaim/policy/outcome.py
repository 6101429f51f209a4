"""What a replay comes to: time freed, and who would have been surprised."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slurm_reclaim.policy.replay import Act, Kind, Replay

REGRET = 900.0  # seconds; an owner who is back sooner would rather have been left alone


@dataclass(frozen=True, slots=True)
class Absence:
    """From a hibernation to the owner's return, or to the end of what is known."""

    act: Act
    begin: float
    end: float
    returned: bool

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def surprised(self) -> bool:
        return self.returned and self.seconds < REGRET


@dataclass(frozen=True, slots=True)
class Outcome:
    """Spans in seconds. `watched`: time in which sessions lived; `idle`: time without use that was
    seen, hibernated or not; `freed` of it, and `gpu_freed` times the GPUs; `withdrawn`: warnings
    answered by a use within the grace."""

    sessions: int
    watched: float
    idle: float
    freed: float
    gpu_freed: float
    warned: int
    withdrawn: int
    notified: int
    blocked: int
    absences: tuple[Absence, ...]
    braked: str = ""

    @property
    def surprised(self) -> tuple[Absence, ...]:
        return tuple(absence for absence in self.absences if absence.surprised)


def absences(acts: Iterable[Act], ends: float) -> list[Absence]:
    """Of one session, whose last sample ended at `ends`."""
    found: list[Absence] = []
    gone: Act | None = None
    for act in acts:
        if act.kind is Kind.HIBERNATED:
            gone = act
        elif act.kind is Kind.RETURNED and gone is not None:
            found.append(Absence(gone, gone.at, act.at, True))
            gone = None
    if gone is not None:
        found.append(Absence(gone, gone.at, max(ends, gone.at), False))
    return found


def outcome(replay: Replay) -> Outcome:
    seats = replay.seats
    by_session: dict[str, list[Act]] = {}
    for act in replay.acts:
        by_session.setdefault(act.session, []).append(act)
    found = [one for name, acts in by_session.items() for one in absences(acts, seats[name].last)]
    kinds = [act.kind for act in replay.acts]
    freed = sum(seat.away for seat in seats.values())
    return Outcome(
        sessions=len(seats),
        watched=sum(seat.seconds for seat in seats.values()),
        idle=sum(seat.quiet for seat in seats.values()) + freed,
        freed=freed,
        gpu_freed=sum(seat.away * seat.gpus for seat in seats.values()),
        warned=kinds.count(Kind.WARNED),
        withdrawn=kinds.count(Kind.WITHDRAWN),
        notified=kinds.count(Kind.NOTIFIED),
        blocked=kinds.count(Kind.BLOCKED),
        absences=tuple(sorted(found, key=lambda one: one.begin)),
        braked=replay.braked,
    )
