"""The host's wall clock, for a program that compares moments."""

from __future__ import annotations

import time
from collections.abc import Callable

# Of a second, while the host's clock is behind.
PACE = 0.9


class SteadyClock:
    """Unix seconds that never go back: what was asked later than something happened must look
    later. Put forward with the host's clock; where that is put back, it goes on a little slower
    than time until the host's has caught up."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._at, self._read = wall(), monotonic()

    @property
    def behind(self) -> float:
        """Seconds by which the host's clock is behind this one."""
        return self.now() - self._wall()

    def now(self) -> float:
        read = self._monotonic()
        self._at = max(self._wall(), self._at + PACE * (read - self._read))
        self._read = read
        return self._at
