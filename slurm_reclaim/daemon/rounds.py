"""What is done again and again: APScheduler's intervals. They go by the wall clock; one that is put
back an hour must not stop them for an hour."""

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
LOOK = 1.0  # seconds between two looks whether the clock was put back


@dataclass(frozen=True, slots=True)
class _Round:
    pause: Callable[[], float]
    first: float
    job: Job


class Rounds:
    """Until `stop`, in the loop that runs when they are made. `wall`: Unix seconds."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
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
            one, "interval", seconds=pause(), next_run_time=self._now() + timedelta(seconds=first)
        )
        self._rounds.append(_Round(pause, first, job))

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
        """What is further off than its pause is so because the clock was put back: it is due. Where
        the clock is put forward APScheduler does at once what it has missed."""
        now = self._now()
        for each in self._rounds:
            if each.job.next_run_time > now + timedelta(seconds=max(each.pause(), each.first)):
                each.job.modify(next_run_time=now)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._wall(), timezone.utc)

    async def stop(self) -> None:
        self._following.cancel()
        self._scheduler.shutdown(wait=False)
        await asyncio.gather(self._following, return_exceptions=True)
