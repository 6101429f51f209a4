"""How good the judgement was: what a replay did, against what is known to be true."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from slurm_reclaim.model.trace import Label
from slurm_reclaim.policy.outcome import Absence, absences
from slurm_reclaim.policy.poisson import limits
from slurm_reclaim.policy.replay import Act, Kind, Seat


@dataclass(slots=True)
class Tally:
    """Seconds and counts of one behaviour, or of all. `watched`: labelled time in which the session
    lived; `idle`: labelled as such, living or not; `reachable`: of that, what comes later than
    window and grace; `captured`: of that, hibernated; `gpu_idle` and `gpu_captured` the same times
    its GPUs. `wrong`: hibernated while in use; `regretted`: its owner was back within 15 minutes;
    `alarms`: warned while in use."""

    sessions: int = 0
    watched: float = 0.0
    idle: float = 0.0
    reachable: float = 0.0
    captured: float = 0.0
    gpu_idle: float = 0.0
    gpu_captured: float = 0.0
    hibernated: int = 0
    wrong: int = 0
    regretted: int = 0
    alarms: int = 0
    warned: int = 0

    @property
    def hours(self) -> float:
        return self.watched / 3600.0

    @property
    def share(self) -> float | None:
        return self.captured / self.idle if self.idle else None

    @property
    def reached(self) -> float | None:
        return self.captured / self.reachable if self.reachable else None

    @property
    def gpu_share(self) -> float | None:
        return self.gpu_captured / self.gpu_idle if self.gpu_idle else None

    @property
    def regret(self) -> float | None:
        return self.regretted / self.hibernated if self.hibernated else None

    def rate(self, level: float = 0.95) -> tuple[float, float, float] | None:
        """False positives per 1,000 session-hours with the exact limits; None without hours."""
        if self.watched <= 0:
            return None
        low, high = limits(self.wrong, level)
        per = 1000.0 / self.hours
        return self.wrong * per, low * per, high * per


@dataclass(slots=True)
class Score:
    """`wrongs`: the false positives, each with the behaviour that it hit."""

    total: Tally = field(default_factory=Tally)
    behaviours: dict[str, Tally] = field(default_factory=dict)
    wrongs: list[tuple[Act, str]] = field(default_factory=list)


def score(seats: Iterable[Seat], acts: Iterable[Act]) -> Score:
    """Time without a label is not judged. What was done in the very moment in which a label begins
    is the earlier one's: nothing could have told yet."""
    by_session: dict[str, list[Act]] = {}
    for act in acts:
        by_session.setdefault(act.session, []).append(act)
    found = Score()
    for seat in seats:
        if seat.labels:
            _add(found, seat, by_session.get(seat.watched.session, []))
    return found


def _add(found: Score, seat: Seat, acts: list[Act]) -> None:
    away = absences(acts, seat.last)
    begins = [absence.begin for absence in away]
    warned = [act.at for act in acts if act.kind in (Kind.WARNED, Kind.NOTIFIED)]
    named: set[str] = set()
    found.total.sessions += 1
    for label in seat.labels:
        end = min(label.end, seat.last)
        if end <= label.begin:
            continue
        one = found.behaviours.setdefault(label.behaviour, Tally())
        one.sessions += label.behaviour not in named
        named.add(label.behaviour)
        first, last = bisect_right(begins, label.begin), bisect_right(begins, end)
        inside = away[first:last]
        reaching = away[max(0, first - 1) : last]
        gone = sum(_overlap(absence, label.begin, end) for absence in reaching)
        tells = bisect_right(warned, end) - bisect_right(warned, label.begin)
        for tally in (one, found.total):
            _time(tally, label, end - label.begin, gone, seat)
            tally.warned += tells
            tally.alarms += tells if label.active else 0
            for absence in inside:
                _count(tally, label, absence)
        if label.active:
            found.wrongs += [(absence.act, label.behaviour) for absence in inside]


def _time(tally: Tally, label: Label, length: float, gone: float, seat: Seat) -> None:
    after = seat.terms.window + seat.terms.grace if seat.terms is not None else 0.0
    tally.watched += length - gone
    if not label.active:
        tally.idle += length
        tally.captured += gone
        tally.reachable += max(0.0, length - after)
        tally.gpu_idle += length * seat.gpus
        tally.gpu_captured += gone * seat.gpus


def _count(tally: Tally, label: Label, absence: Absence) -> None:
    tally.hibernated += 1
    tally.wrong += label.active
    tally.regretted += absence.surprised


def _overlap(absence: Absence, begin: float, end: float) -> float:
    return max(0.0, min(absence.end, end) - max(absence.begin, begin))
