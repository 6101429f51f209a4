"""What the kernel tells of a session's use: CPU, I/O, network and terminals (docs/signals.md).

Each fulfils ports.Meter. The first reading begins the count; it says nothing yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from slurm_reclaim.adapters.proc import cgroup, terminals
from slurm_reclaim.adapters.proc.census import OLD, Census
from slurm_reclaim.adapters.proc.connections import Connections, Holdings
from slurm_reclaim.adapters.proc.rates import LAP, Rates, cpu_seconds, io_bytes
from slurm_reclaim.adapters.proc.tree import namespace
from slurm_reclaim.errors import Unavailable
from slurm_reclaim.model.sample import GpuHeld, Reading, Signal

_CPU, _IO, _NETWORK, _TERMINAL = (
    signal.value for signal in (Signal.CPU, Signal.IO, Signal.NETWORK, Signal.TERMINAL)
)
# Bytes per second and process of the session that VS Code's extension host reads and writes while a
# page is open: it looks through /proc for new ports. 6.4 KB/s were seen.
_SCAN = 16 << 10


# Seconds for which nothing has run in a job before a meter looks at it for the last time: each of
# its processes was read since (rates.LAP), and its connections.
_SETTLED = LAP + OLD


class _Meter:
    def __init__(self, census: Census) -> None:
        self._census = census
        self._looked = 0.0

    def _rests(self) -> bool:
        """Whether nothing ran in the job since this meter's last look, which was a late one: what
        it would see is known. Otherwise this is a look."""
        if self._looked - self._census.still_since() >= _SETTLED:
            return True
        self._looked = time.monotonic()
        return False

    def held(self) -> Sequence[GpuHeld]:
        return ()


class _Grown:
    """By how much a counter grew per second since the last call; None where that is not known:
    at the first call, and where it went back (another cgroup of the same name counts anew)."""

    def __init__(self) -> None:
        self._value: float | None = None

    def rate(self, value: float | None, seconds: float) -> float | None:
        before, self._value = self._value, value
        if value is None or before is None or value < before or seconds <= 0:
            return None
        return (value - before) / seconds


class CpuMeter(_Meter):
    """Cores used by everything in the job: children, background jobs, srun steps and adopted
    logins. From the job's cgroup; without one that counts CPU time from the processes, and then
    each of them by its average since it was last looked at."""

    def __init__(self, census: Census) -> None:
        super().__init__(census)
        self._grown = _Grown()
        self._rates = Rates("stat", cpu_seconds)

    def read(self, seconds: float) -> Mapping[str, Reading]:
        ran = self._census.ran()
        try:
            members = self._census.members()
        except Unavailable as error:
            return {_CPU: Reading(None, what=error.message)}
        ides = " and ".join(self._census.ides)
        what = f"{ides} connected is not use" if ides else ""
        if self._census.clock.counts:
            value = self._grown.rate(ran, seconds)
        else:
            value = self._rates.total(members, self._census.listed, time.monotonic())
        if value is None:
            what = "the CPU time can't be read"
        elif value > 2 and value > 2 * (os.cpu_count() or 1):  # which is asked of files
            value, what = None, f"absurd: {value:.0f} cores"
        return {_CPU: Reading(value, what=what)}


class IoMeter(_Meter):
    """Bytes per second that the job's processes read and wrote: files on any file system, page
    cache or not, pipes, terminals and sockets used like files (/proc/PID/io rchar and wchar, or
    what went to block devices where that is more). Each process by its average since it was last
    looked at, which is once a minute or more often. Where the job's cgroup counts block I/O and
    that is more than the sum, it counts. send and recv on sockets do not: see NetworkMeter."""

    def __init__(self, census: Census) -> None:
        super().__init__(census)
        self._grown = _Grown()
        # Who becomes another program has read it: its I/O tells whom to look at anew.
        self._rates = Rates("io", io_bytes, spared=_SCAN, stirred=census.stirred)

    def read(self, seconds: float) -> Mapping[str, Reading]:
        try:
            members = self._census.members()
        except Unavailable as error:
            return {_IO: Reading(None, what=error.message)}
        if self._rests():
            return {_IO: Reading(0.0)}
        value = self._rates.total(members, self._census.listed, time.monotonic())
        block = self._grown.rate(cgroup.block_bytes(self._census.directories), seconds)
        if value is None:
            return {_IO: Reading(None, what="/proc/PID/io can't be read")}
        return {_IO: Reading(max(value, block or 0.0))}


class NetworkMeter(_Meter):
    """Bytes per second over the job's TCP connections, both directions, as acknowledged and
    received; not those of which the job has both ends. What a connection carried after the last
    look before it ended, and one that began and ended between two looks, is not seen; UDP is
    not counted by the kernel."""

    def __init__(self, census: Census, init: int, uid: int, connections: Connections) -> None:
        super().__init__(census)
        self._connections = connections
        self._holdings = Holdings(uid)
        self._same_network = namespace(init, "net") == namespace(os.getpid(), "net")

    def read(self, seconds: float) -> Mapping[str, Reading]:
        if not self._same_network:
            what = "the session has a network of its own"
            return {_NETWORK: Reading(None, what=what)}
        if self._rests():
            return {_NETWORK: Reading(0.0)}
        try:
            value = self._connections.rate(self._holdings, self._census.members())
        except Unavailable as error:
            return {_NETWORK: Reading(None, what=error.message)}
        return {_NETWORK: Reading(value)}


class TerminalMeter(_Meter):
    """Terminals with new input: those of the session and of logins adopted into the job. Output
    is no use, nor is what we write there. A terminal that was opened counts as one with input."""

    def __init__(self, census: Census, init: int, clock: Callable[[], float] = time.time) -> None:
        super().__init__(census)
        self._folder = terminals.Folder(init)
        self._clock = clock
        self._known: dict[str, float] = {}

    def read(self, seconds: float) -> Mapping[str, Reading]:
        try:
            found = self._known if self._rests() else self._found()
        except Unavailable as error:
            return {_TERMINAL: Reading(None, what=error.message)}
        except OSError as error:
            what = f"the session's terminals can't be seen: {error.strerror}"
            return {_TERMINAL: Reading(None, what=what)}
        used = [name for name, at in found.items() if at != self._known.get(name)]
        self._known = found
        if not found:
            return {_TERMINAL: Reading(0.0, what="no terminal")}
        # a time that is still to come tells of a clock that was put back
        last = min(max(found.values()), self._clock())
        what = f"input on {', '.join(sorted(used)[:5])}" if used else "no input"
        return {_TERMINAL: Reading(float(len(used)), last, what)}

    def _found(self) -> dict[str, float]:
        """Raises Unavailable, OSError."""
        self._census.members()
        found = terminals.of_devices(self._census.logins)
        found.update(self._folder.atimes())
        return found
