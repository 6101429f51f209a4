"""What happened lately, for the limits and the brake. In memory: what is older than the span that
the brake counts over has no say."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from slurm_reclaim.model.event import Event
from slurm_reclaim.model.lifecycle import Fact, State


@dataclass(slots=True)
class History:
    """(Unix seconds, kind of event, state before, session) in order."""

    entries: deque[tuple[float, str, str, str]] = field(
        default_factory=lambda: deque(maxlen=50_000)
    )

    def add(self, event: Event) -> None:
        self.entries.append((event.at, event.kind, event.before, event.session))

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def begun(self, since: float) -> int:
        """Hibernations of idle sessions begun since then."""
        return sum(
            1 for at, kind, _, _ in self.entries if at >= since and kind == Fact.DEADLINE_PASSED
        )

    def counts(self, since: float) -> dict[str, int]:
        """`hibernated`, `failed`: how hibernations of idle sessions ended; `ran_out`, `kept`: how
        warnings did."""
        found = dict.fromkeys(("hibernated", "failed", "ran_out", "kept"), 0)
        ours: set[str] = set()
        for at, kind, before, session in self.entries:
            if kind == Fact.DEADLINE_PASSED:
                ours.add(session)
                found["ran_out"] += at >= since
            elif kind == Fact.ACTIVITY_SEEN and before == State.WARNED:
                found["kept"] += at >= since
            elif session in ours and before == State.HIBERNATING:
                ours.discard(session)
                found["hibernated"] += at >= since and kind == Fact.CHECKPOINT_COMMITTED
                found["failed"] += at >= since and kind == Fact.DUMP_FAILED
        return found
