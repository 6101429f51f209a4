"""What happened lately, for the limits and the brake. In memory: what is older than the span that
the brake counts over has no say."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from slurm_reclaim.model.event import Event
from slurm_reclaim.model.lifecycle import Fact, State

_ENDINGS: dict[str, str] = {
    Fact.CHECKPOINT_COMMITTED: "hibernated",
    Fact.DUMP_FAILED: "failed",
}


@dataclass(slots=True)
class History:
    """(Unix seconds, kind of event, state before, session, uid) in order; and by themselves the
    times at which hibernations of idle sessions began."""

    entries: deque[tuple[float, str, str, str, int]] = field(
        default_factory=lambda: deque(maxlen=50_000)
    )
    _begun: deque[float] = field(default_factory=lambda: deque(maxlen=50_000))

    def add(self, event: Event) -> None:
        self.entries.append((event.at, event.kind, event.before, event.session, event.uid))
        if event.kind == Fact.DEADLINE_PASSED:
            self._begun.append(event.at)

    def clear(self) -> None:
        self.entries.clear()
        self._begun.clear()

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def begun(self, since: float) -> int:
        """Hibernations of idle sessions begun since then."""
        return sum(1 for _ in takewhile(lambda at: at >= since, reversed(self._begun)))

    def counts(self, since: float) -> dict[str, Counter[int]]:
        """How often since then, by the owner's uid. `hibernated`, `failed`: how hibernations of
        idle sessions ended; `ran_out`, `kept`: how warnings did."""
        found: dict[str, Counter[int]] = {
            name: Counter() for name in ("hibernated", "failed", "ran_out", "kept")
        }
        ours: set[str] = set()
        for at, kind, before, session, uid in self.entries:
            what = ""
            if kind == Fact.DEADLINE_PASSED:
                ours.add(session)
                what = "ran_out"
            elif kind == Fact.ACTIVITY_SEEN and before == State.WARNED:
                what = "kept"
            elif session in ours and before == State.HIBERNATING:
                ours.discard(session)
                what = _ENDINGS.get(kind, "")
            if what and at >= since:
                found[what][uid] += 1
        return found
