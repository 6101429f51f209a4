"""What is done again and again: APScheduler's intervals, which go by the wall clock, kept in step
with it. A clock that is put back an hour must not stop them for an hour."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from apscheduler.job import Job
from apscheduler.schedulers.asyncio import AsyncIOScheduler

# It tells of every beginning and end otherwise.
logging.getLogger("apscheduler").setLevel(logging.WARNING)
LOOK = 1.0  # seconds between two looks whether the clock was set
STEP = 0.5  # seconds; less is a clock that is disciplined


@dataclass(frozen=True, slots=True)
class _Round:
    pause: Callable[[], float]
    job: Job


class Rounds:
    """Several of them, until `stop`, in the loop that runs when it is made. `wall` and `monotonic`
    in seconds."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._ahead = wall() - monotonic()
        self._rounds: list[_Round] = []
        # Work that takes longer is begun again at the next time that has not passed.
        once = {"max_instances": 1, "coalesce": True, "misfire_grace_time": None}
        self._scheduler = AsyncIOScheduler(timezone="UTC", job_defaults=once)
        self._scheduler.start()
        self._following = asyncio.get_running_loop().create_task(self._follow())

    def begin(
        self, work: Callable[[], Awaitable[object]], pause: Callable[[], float], first: float = 0.0
    ) -> None:
        """`pause`: seconds from one beginning to the next; `first`: seconds until the first. What
        `work` raises is logged, and it is done again the next time."""

        async def one() -> None:  # what APScheduler is to await must be a function
            await work()

        job = self._scheduler.add_job(
            one, "interval", seconds=pause(), next_run_time=_now() + timedelta(seconds=first)
        )
        self._rounds.append(_Round(pause, job))

    def changed(self) -> None:
        """Pauses may be other ones now, counted from now."""
        for each in self._rounds:
            pause = timedelta(seconds=each.pause())
            if pause != each.job.trigger.interval:
                each.job.reschedule("interval", seconds=each.pause())

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            self.keep_step()

    def keep_step(self) -> None:
        """Where the clock was set, what is to come is put off or brought forward with it."""
        ahead = self._wall() - self._monotonic()
        step, self._ahead = ahead - self._ahead, ahead
        if abs(step) < STEP:
            return
        for each in self._rounds:
            each.job.modify(next_run_time=each.job.next_run_time + timedelta(seconds=step))

    async def stop(self) -> None:
        self._following.cancel()
        self._scheduler.shutdown(wait=False)
        await asyncio.gather(self._following, return_exceptions=True)


def _now() -> datetime:
    return datetime.now(timezone.utc)
