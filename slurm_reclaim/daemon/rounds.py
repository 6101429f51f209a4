"""What is done again and again. By the monotonic clock: a wall clock that is put back an hour must
not stop it for an hour."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Round:
    """`pause`: seconds from one beginning to the next, asked each time; work that takes longer is
    begun again as soon as it has ended. `first`: seconds until the first."""

    work: Callable[[], Awaitable[object]]
    pause: Callable[[], float]
    first: float = 0.0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        await self._until(loop.time(), lambda: self.first)
        while True:
            began = loop.time()
            try:
                await self.work()
            except Exception:
                # What is not possible now is for the next time.
                log.exception("a round failed")
            await self._until(began, self.pause)

    async def _until(self, began: float, pause: Callable[[], float]) -> None:
        loop = asyncio.get_running_loop()
        while (left := began + pause() - loop.time()) > 0:
            self._changed.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)

    def changed(self) -> None:
        """The pause may be another one now."""
        self._changed.set()


class Rounds:
    """Several of them, until `stop`."""

    def __init__(self) -> None:
        self._rounds: list[Round] = []
        self._tasks: list[asyncio.Task[None]] = []

    def begin(
        self, work: Callable[[], Awaitable[object]], pause: Callable[[], float], first: float = 0.0
    ) -> None:
        one = Round(work, pause, first)
        self._rounds.append(one)
        self._tasks.append(asyncio.get_running_loop().create_task(one.run()))

    def changed(self) -> None:
        for one in self._rounds:
            one.changed()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
