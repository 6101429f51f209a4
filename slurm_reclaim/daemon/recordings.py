"""What agents measure, for `reclaim record`: kept only while somebody asks, and only so much.

Several may record at once: each says up to which number it has what there is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from slurm_reclaim.model.sample import Sample
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.trace import Measured, Recorded, Watched
from slurm_reclaim.ports import Clock
from slurm_reclaim.stages.desk import Desk

MOST_KEPT = 20_000  # samples: some 40 MiB, and twenty seconds of 10,000 sessions
MOST_AT_ONCE = 4_000  # samples in one answer
ASKED_WITHIN = 60.0  # seconds


class Recordings:
    def __init__(self, desk: Desk, most: int = MOST_KEPT) -> None:
        self._cluster = desk.settings.cluster
        self._clock: Clock = desk.clock
        self._ring: deque[tuple[Session, Sample]] = deque(maxlen=most)
        self._last = 0  # the number of the ring's last sample
        self._asked = float("-inf")
        self._waiting: set[asyncio.Event] = set()
        desk.recorder = self.take

    def take(self, session: Session, samples: Sequence[Sample]) -> None:
        """Called for every report; does nothing while nobody records."""
        if not self._wanted():
            self._ring.clear()
            return
        self._ring.extend((session, sample) for sample in samples)
        self._last += len(samples)
        for event in self._waiting:
            event.set()

    async def after(self, number: int, wait: float) -> Recorded:
        """What came after `number`; where there is nothing, wait for it, at most `wait` seconds.
        A negative number begins now."""
        self._asked = self._clock.now()
        if number < 0:
            return Recorded(self._cluster, self._last)
        if number > self._last:
            number = 0  # of an earlier reclaimd
        if number == self._last and wait > 0:
            event = asyncio.Event()
            self._waiting.add(event)
            try:
                await asyncio.wait_for(event.wait(), wait)
            except asyncio.TimeoutError:
                pass
            finally:
                self._waiting.discard(event)
            self._asked = self._clock.now()
        return self._answer(number)

    def _answer(self, number: int) -> Recorded:
        first = self._last - len(self._ring)
        lost = max(0, first - number)
        begin = max(number, first) - first
        chosen = [self._ring[i] for i in range(begin, min(begin + MOST_AT_ONCE, len(self._ring)))]
        sessions = {str(session.id): session for session, _ in chosen}
        return Recorded(
            self._cluster,
            last=first + begin + len(chosen),
            lost=lost,
            sessions=tuple(_watched(session) for session in sessions.values()),
            samples=tuple(Measured(str(session.id), sample) for session, sample in chosen),
        )

    def _wanted(self) -> bool:
        return bool(self._waiting) or self._clock.now() - self._asked <= ASKED_WITHIN


def _watched(session: Session) -> Watched:
    return Watched(
        session=str(session.id),
        user=session.user,
        account=session.account,
        partition=session.partition,
        qos=session.qos,
        name=session.name,
        tres=session.tres,
        node=session.node,
        started=session.started,
        blockers=session.blockers,
    )
