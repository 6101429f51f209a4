"""Rates of counters that each process has for itself: read in rotation, so that a pass is cheap.

The counters only grow, so that what is read late is not lost. A process that ends hands its own
on to the parent that waits for it; what was counted already is not counted again. Who has not run
has counted nothing, and to ask for the CPU time of a process costs a quarter of reading its file.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping
from math import ceil

from slurm_reclaim.adapters.proc import census
from slurm_reclaim.adapters.proc.census import Member
from slurm_reclaim.adapters.proc.tree import PROC

LAP = 60.0  # seconds in which every process that runs is read once
_LEAST, _MOST = 8, 1000  # processes read in one pass
_TICKS = os.sysconf("SC_CLK_TCK")
# The clock of a process: the complement of its number, shifted by 3, and this (Linux's
# CPUCLOCK_SCHED; clock_getcpuclockid(3) makes the same).
_CPU_TIME = 2


def cpu_seconds(text: bytes) -> float:
    """From /proc/PID/stat: CPU time of the process and of the children it has waited for. Raises
    ValueError, IndexError."""
    return sum(map(int, text.rpartition(b") ")[2].split(None, 15)[11:15])) / _TICKS


def io_bytes(text: bytes) -> float:
    """From /proc/PID/io: bytes that went through read and write, or through the block layer where
    that is more (mapped files). Raises ValueError, IndexError."""
    words = text.split(None, 12)
    # rchar: N wchar: N syscr: N syscw: N read_bytes: N write_bytes: N ...
    return max(int(words[1]), int(words[9])) + max(int(words[3]), int(words[11]))


class _Files:
    """How many files of processes are kept open: to open one costs three times what reading it
    does. The rest of the agent needs descriptors, too."""

    most = min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    kept = 0


class _Counter:
    """`text`: the file as it was read last, at `read_at`; `ran` the CPU time right before that, -1
    unknown; `at` up to when `value` is known to be right."""

    __slots__ = ("at", "clock", "fd", "member", "new", "owed", "ran", "rate", "read_at", "text",
                 "value")  # fmt: skip

    def __init__(self, member: Member, new: bool) -> None:
        self.member, self.new = member, new
        self.value = self.at = self.rate = self.owed = self.read_at = 0.0
        self.text = b""
        self.clock, self.ran = ~member.pid << 3 | _CPU_TIME, -1
        self.fd = -1

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            _Files.kept -= 1

    def read(self, name: str) -> bytes:
        """The process's file of that name. Raises OSError."""
        if self.fd >= 0:
            try:
                return os.pread(self.fd, 4096, 0)
            except OSError:
                self.close()  # of one that has ended; the number may be another's now
        fd = os.open(f"{PROC}/{self.member.pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        if _Files.kept < _Files.most:
            self.fd = fd
            _Files.kept += 1
            return os.pread(fd, 4096, 0)
        try:
            return os.read(fd, 4096)
        finally:
            os.close(fd)


class Rates:
    """Of the counter that `parse` finds in each process's /proc/PID/`name`. Of one that scans,
    `spared` a second for each of the processes is not counted. `stirred` gets the processes whose
    file was another one than before, or could not be read."""

    def __init__(
        self,
        name: str,
        parse: Callable[[bytes], float],
        *,
        spared: float = 0.0,
        stirred: set[int] | None = None,
    ) -> None:
        self._name, self._parse, self._spared = name, parse, spared
        self._stirred = set[int]() if stirred is None else stirred
        self._scanning: list[_Counter] = []
        self._counters: dict[int, _Counter] = {}
        self._members: Mapping[int, Member] = {}
        self._begun = False
        self._twice = False
        self._at = 0.0
        self._last: float | None = None

    def total(self, members: Mapping[int, Member], listed: float, now: float) -> float | None:
        """Per second, of all of them: each process by its last two readings. `now` and `listed`,
        which is when the list of members was made: monotonic seconds. Only of a list that is
        new is it known whose counters a parent has taken over, so that with an old one nothing
        is read, but for the second time. None where no process could be read."""
        if now - listed > census.FRESH and self._twice:
            return self._last
        seconds, self._at = now - self._at, now
        if members is not self._members:
            self._members = members
            self._follow(members)
        self._last = self._read_some(now, seconds)
        self._twice, self._begun = self._begun, True
        return self._last

    def _read_some(self, now: float, seconds: float) -> float | None:
        wanted = ceil(len(self._counters) * seconds / LAP) if self._begun else _MOST
        moved = self._moved(now)
        known, burst = len(moved) < len(self._counters), 0.0
        most = min(max(wanted, _LEAST), _MOST)
        if len(moved) > most:
            moved = sorted(moved, key=lambda each: each[0].read_at)[:most]
        for counter, ran in moved:
            counter.ran, counter.read_at = ran, now
            try:
                burst += self._count(counter, counter.read(self._name), now)
                known = True
            except (OSError, ValueError, IndexError):
                counter.rate, counter.ran = 0.0, -1
                self._stirred.add(counter.member.pid)
        if not known:
            return None
        steady = sum([counter.rate for counter in self._counters.values()])
        for counter in self._scanning:
            steady -= min(counter.rate, self._spared * len(self._counters))
        return steady + (burst / seconds if seconds > 0 else 0.0)

    def _moved(self, now: float) -> list[tuple[_Counter, int]]:
        """Those that have run since their file was read, or may have, with their CPU time: of all
        threads, in ns, -1 where it is not known. That of one that runs at this very moment may be
        a tick old: it is found to have run the next time."""
        moved = []
        for counter in self._counters.values():
            try:
                ran = time.clock_gettime_ns(counter.clock)
            except OSError:
                ran = -1
            if ran != counter.ran or ran < 0 or counter.owed:
                moved.append((counter, ran))
            else:
                counter.at, counter.rate = now, 0.0
        return moved

    def _follow(self, members: Mapping[int, Member]) -> None:
        for pid in self._counters.keys() - members.keys():
            counter = self._counters.pop(pid)
            parent = self._counters.get(counter.member.parent)
            if parent is not None:
                parent.owed += counter.value
        for pid in members.keys() - self._counters.keys():
            self._counters[pid] = _Counter(members[pid], self._begun)
        self._scanning = [c for c in self._counters.values() if c.member.scans]

    def _count(self, counter: _Counter, text: bytes, now: float) -> float:
        """Bring one up to date; what a process did that was not there before, all at once. Where
        the file says the same as before it is not taken apart."""
        if text and text == counter.text:
            counter.at, counter.owed, counter.rate = now, 0.0, 0.0
            return 0.0
        counter.text = text
        self._stirred.add(counter.member.pid)
        value = self._parse(text)
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
