"""Rates of counters that each process has for itself: read in rotation, so that a pass is cheap.

The counters only grow, so that what is read late is not lost. A process that ends hands its own
on to the parent that waits for it; what was counted already is not counted again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from math import ceil

from slurm_reclaim.adapters.proc import census
from slurm_reclaim.adapters.proc.census import Member
from slurm_reclaim.adapters.proc.cgroup import contents
from slurm_reclaim.adapters.proc.tree import PROC

LAP = 60.0  # seconds in which every process is read once
_LEAST, _MOST = 16, 1000  # processes read in one pass
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """CPU time of the process and of the children it has waited for. Raises OSError, ValueError,
    IndexError."""
    _, fields = census.stat(pid)
    return sum(map(int, fields[11:15])) / _TICKS


def io_bytes(pid: int) -> float:
    """Bytes that went through read and write, or through the block layer where that is more
    (mapped files). Raises OSError, ValueError, IndexError."""
    words = contents(f"{PROC}/{pid}/io").split()
    # rchar: N wchar: N syscr: N syscw: N read_bytes: N write_bytes: N ...
    return max(int(words[1]), int(words[9])) + max(int(words[3]), int(words[11]))


class _Counter:
    __slots__ = ("at", "gone", "member", "new", "owed", "rate", "value")

    def __init__(self, member: Member, new: bool) -> None:
        self.member, self.new = member, new
        self.value = self.at = self.rate = self.owed = 0.0
        self.gone = False


class Rates:
    """`read` gives a process's counter."""

    def __init__(self, read: Callable[[int], float]) -> None:
        self._read = read
        self._counters: dict[int, _Counter] = {}
        self._turn: deque[_Counter] = deque()
        self._begun = False

    def total(self, members: Mapping[int, Member], now: float, seconds: float) -> float | None:
        """Per second, of all of them: each process by its last two readings. `now` monotonic
        seconds, `seconds` since the last call. None where no process could be read."""
        self._follow(members)
        wanted = ceil(len(self._counters) * seconds / LAP) if self._begun else _MOST
        burst, good = 0.0, 0
        for _ in range(min(max(wanted, _LEAST), _MOST, len(self._counters))):
            counter = self._next()
            if counter is None:
                break
            try:
                burst += self._count(counter, now)
                good += 1
            except (OSError, ValueError, IndexError):
                counter.rate = 0.0
            self._turn.append(counter)
        self._begun = True
        if not good:
            return None
        steady = sum(counter.rate for counter in self._counters.values())
        return steady + (burst / seconds if seconds > 0 else 0.0)

    def _follow(self, members: Mapping[int, Member]) -> None:
        for pid in self._counters.keys() - members.keys():
            counter = self._counters.pop(pid)
            counter.gone = True
            parent = self._counters.get(counter.member.parent)
            if parent is not None:
                parent.owed += counter.value
        for pid in members.keys() - self._counters.keys():
            counter = self._counters[pid] = _Counter(members[pid], self._begun)
            self._turn.appendleft(counter)

    def _next(self) -> _Counter | None:
        while self._turn:
            counter = self._turn.popleft()
            if not counter.gone:
                return counter
        return None

    def _count(self, counter: _Counter, now: float) -> float:
        """Bring one up to date; what a process did that was not there before, all at once."""
        value = self._read(counter.member.pid)
        grown, since = value - counter.value, now - counter.at
        first, counter.value, counter.at = not counter.at, value, now
        owed, counter.owed = counter.owed, 0.0
        if first or grown < 0:
            # the number of a process that ended may be another's now
            return value if counter.new or not first else 0.0
        if owed and grown >= owed:
            grown -= owed
        counter.rate = grown / since if since > 0 else 0.0
        return 0.0
