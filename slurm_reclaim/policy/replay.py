"""What the controller would have done on a trace: the same fold, terms, decision, guards, limits.

    window full -> guards -> warning -> grace -> hibernated if still quiet -> the owner's return

After a hibernation the session is gone until its owner comes back, which restores it; then it is
watched anew. Where the trace does not know when that was, the next use seen in it counts. Owners
are taken to be reached by every warning, and hibernations to succeed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.evidence import Evidence
from slurm_reclaim.model.sample import Sample
from slurm_reclaim.model.trace import Entry, Header, Label, Measured, Return, Watched
from slurm_reclaim.model.words import clock
from slurm_reclaim.policy import guards
from slurm_reclaim.policy.decision import Decision, Standing, decide, doubt
from slurm_reclaim.policy.idleness import begin, fold, idle_span
from slurm_reclaim.policy.limits import Load, Tally, brake, full
from slurm_reclaim.policy.terms import TERMS_HOLD, Subject, Terms, gpu_count, terms, timed

HIBERNATION_LASTS = 60.0  # seconds that one is taken to be at work


class Kind(str, Enum):
    """`notified`: warned by a rule whose action is no more than that."""

    WARNED = "warned"
    WITHDRAWN = "withdrawn"
    HIBERNATED = "hibernated"
    RETURNED = "returned"
    NOTIFIED = "notified"
    BLOCKED = "blocked"
    BRAKE = "brake"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Act:
    """`at` Unix seconds; `idle` seconds for which the session was quiet by then."""

    session: str
    at: float
    kind: Kind
    reason: str
    idle: float = 0.0


@dataclass(slots=True)
class Seat:
    """One session while it is replayed. `gone`: since when it is hibernated (0: it lives);
    `deadline` of the warning (0: not warned); `seconds` watched, `quiet` of them without use,
    `away` hibernated. `uses`: the labels that
    say active."""

    watched: Watched
    gpus: int
    evidence: Evidence | None = None
    terms: Terms | None = None
    terms_until: float = 0.0
    started: float = 0.0
    warned: float = 0.0
    deadline: float = 0.0
    cooldown_until: float = 0.0
    told: float = -1.0
    gone: float = 0.0
    last: float = 0.0
    seconds: float = 0.0
    quiet: float = 0.0
    away: float = 0.0
    labels: list[Label] = field(default_factory=list)
    uses: list[tuple[float, float]] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)

    def active_at(self, at: float) -> bool:
        """Whether it is known to be in use. The very moment in which use begins is not: nothing
        could have told."""
        found = bisect_left(self.uses, (at, 0.0)) - 1
        return found >= 0 and at <= self.uses[found][1]

    def next_return(self, after: float) -> float:
        """When its owner, or work, is there again at the earliest after that time, as far as that
        is written; infinity: never."""
        at = bisect_right(self.returns, after)
        return self.returns[at] if at < len(self.returns) else float("inf")


def owner(seat: Seat) -> str:
    """Where a trace names no users, every session is somebody else's."""
    return seat.watched.user or seat.watched.session


class Replay:
    """Give it the entries of a trace in their order; `acts` grows."""

    def __init__(self, config: Config, *, limited: bool = True) -> None:
        """`limited`: the limits and the brake hold, which they can only on a trace that is in
        order of time."""
        self.config = config
        self.acts: list[Act] = []
        self.seats: dict[str, Seat] = {}
        self.header = Header("")
        self.braked = ""
        self._limited = limited
        # Where no rule and no desk looks at the clock, terms hold for good.
        self._terms_hold = TERMS_HOLD if timed(config) else float("inf")
        self._begun: list[float] = []
        self._work: list[tuple[float, str]] = []
        self._answers: list[tuple[float, Kind, str]] = []

    def run(self, entries: Iterable[Entry]) -> Replay:
        for entry in entries:
            self.take(entry)
        return self

    def take(self, entry: Entry) -> None:
        if isinstance(entry, Measured):
            self.sample(self.seats[entry.session], entry.sample)
        elif isinstance(entry, Header):
            self.header = entry
            self._limited = self._limited and not entry.by_session
        elif isinstance(entry, Watched):
            self.seats[entry.session] = Seat(entry, gpu_count(entry.tres), started=entry.started)
        elif isinstance(entry, Label):
            seat = self.seats[entry.session]
            seat.labels.append(entry)
            if entry.active:
                insort(seat.returns, entry.begin)
                insort(seat.uses, (entry.begin, entry.end))
        elif isinstance(entry, Return):
            insort(self.seats[entry.session].returns, entry.at)

    def sample(self, seat: Seat, sample: Sample) -> None:
        if sample.at <= seat.last:
            return
        seat.last = sample.at
        held = self._terms(seat, sample.at)
        if seat.gone and not self._back(seat, sample, held):
            return
        before = begin(sample.began) if seat.evidence is None else seat.evidence
        seat.evidence = evidence = fold(before, sample, held.yardstick)
        seat.seconds += sample.seconds
        decision = decide(evidence, held, sample.at, self.config.agent.silent_after)
        if decision.standing is Standing.QUIET or decision.standing is Standing.IDLE:
            seat.quiet += sample.seconds
        if seat.deadline:
            self._warned(seat, evidence, decision, held, sample.at)
        elif decision.standing is Standing.IDLE:
            self._idle(seat, evidence, decision, held, sample.at)

    # -- what the controller's stages do ------------------------------------------------------

    def _idle(
        self, seat: Seat, evidence: Evidence, decision: Decision, held: Terms, now: float
    ) -> None:
        if self._guard(seat, held, now) is not None:
            return
        span = idle_span(evidence)
        if seat.watched.blockers:
            seat.cooldown_until = now + self.config.idle.cooldown
            self._act(seat, now, Kind.BLOCKED, "; ".join(seat.watched.blockers), decision)
        elif held.action == "notify":
            if seat.told < span:
                seat.told = span
                self._act(seat, now, Kind.NOTIFIED, decision.reason, decision)
        else:
            seat.warned, seat.deadline = now, now + held.grace
            self._act(seat, now, Kind.WARNED, decision.reason, decision)

    def _warned(
        self, seat: Seat, evidence: Evidence, decision: Decision, held: Terms, now: float
    ) -> None:
        gap = self.config.idle.gap
        found = doubt(evidence, decision, seat.warned, seat.deadline, gap, now)
        if found is not None:
            self._withdraw(seat, decision, now, used=found.used)
            return
        guard = self._guard(seat, held, now)
        if guard is not None:
            self._withdraw(seat, replace(decision, reason=guard.reason), now, used=False)
        elif decision.standing is Standing.IDLE and now >= seat.deadline:
            if seat.next_return(now - 0.001) <= now:
                # In the very last moment, which activity read again before the kill shows (S5).
                self._withdraw(seat, replace(decision, reason="in use again"), now, used=True)
            elif not self._full(seat, now):
                self._hibernate(seat, decision, now)

    def _withdraw(self, seat: Seat, decision: Decision, now: float, *, used: bool) -> None:
        seat.warned = seat.deadline = 0.0
        if used:
            insort(self._answers, (now, Kind.WITHDRAWN, owner(seat)))
            self._watch(seat, now)
        self._act(seat, now, Kind.WITHDRAWN, decision.reason, decision)

    def _hibernate(self, seat: Seat, decision: Decision, now: float) -> None:
        seat.warned = seat.deadline = 0.0
        seat.gone = now
        insort(self._begun, now)
        insort(self._answers, (now, Kind.HIBERNATED, owner(seat)))
        self._work = [one for one in self._work if one[0] > now]
        self._work.append((now + HIBERNATION_LASTS, seat.watched.node))
        self._act(seat, now, Kind.HIBERNATED, decision.reason, decision)
        self._watch(seat, now)

    def _back(self, seat: Seat, sample: Sample, held: Terms) -> bool:
        """Whether the owner of a session that is gone has come back by the end of this sample."""
        came = seat.next_return(seat.gone)
        if came > sample.at:
            came = float("inf")
        if not self.header.complete or seat.active_at(sample.at):
            before = seat.evidence or begin(sample.began)
            seat.evidence = fold(before, sample, held.yardstick)
            if seat.evidence.active_at > seat.gone:
                came = min(came, seat.evidence.active_at)
        if came > sample.at:
            seat.away += sample.seconds if sample.began >= seat.gone else sample.at - seat.gone
            return False
        seat.away += max(0.0, came - max(seat.gone, sample.began))
        self._act(seat, came, Kind.RETURNED, f"after {came - seat.gone:.0f} s", None)
        seat.gone, seat.started, seat.cooldown_until = 0.0, came, 0.0
        seat.evidence = begin(max(came, sample.began))
        return True

    # -- what they ask ------------------------------------------------------------------------

    def _terms(self, seat: Seat, now: float) -> Terms:
        if seat.terms is not None and now < seat.terms_until:
            return seat.terms
        of = seat.watched
        subject = Subject(
            self.header.cluster, of.partition, of.qos, of.account, of.user, of.name, of.tres
        )
        seat.terms, seat.terms_until = terms(self.config, subject, now), now + self._terms_hold
        return seat.terms

    def _guard(self, seat: Seat, held: Terms, now: float) -> guards.Guard | None:
        situation = guards.Situation(
            started=seat.started,
            min_age=self.config.idle.min_age,
            cooldown_until=seat.cooldown_until,
            brake=self.braked,
        )
        return guards.first(situation, held, now)

    def _full(self, seat: Seat, now: float) -> bool:
        if not self._limited:
            return False
        at_work = [node for end, node in self._work if end > now]
        hour = len(self._begun) - bisect_right(self._begun, now - 3600.0)
        on_node = at_work.count(seat.watched.node) if seat.watched.node else 0
        return bool(full(self.config.limits, Load(on_node, len(at_work), hour)))

    def _watch(self, seat: Seat, now: float) -> None:
        """Pull the brake; nobody is there to let it go."""
        if not self._limited or self.braked:
            return
        since = bisect_left(self._answers, (now - self.config.limits.brake_span, Kind.HIBERNATED))
        answers = self._answers[since:]
        done = Counter(who for _, kind, who in answers if kind is Kind.HIBERNATED)
        kept = Counter(who for _, kind, who in answers if kind is Kind.WITHDRAWN)
        why = brake(self.config.limits, Tally(hibernated=done, ran_out=done, kept=kept))
        if why:
            self.braked = f"{why} at {clock(now)}"
            self._act(seat, now, Kind.BRAKE, why, None)

    def _act(
        self, seat: Seat, at: float, kind: Kind, reason: str, decision: Decision | None
    ) -> None:
        idle = decision.idle if decision is not None else 0.0
        self.acts.append(Act(seat.watched.session, at, kind, reason, idle))
