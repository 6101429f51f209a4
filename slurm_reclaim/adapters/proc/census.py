"""Who is in a session, kept up to date at little cost: every process is looked at when it is new.

A job's processes are those in its cgroup, steps (srun) and adopted logins (ssh) among them; where
it has none of its own, those in the session's PID namespace, and then the steps are not seen. The
cgroup names its own processes; for the others /proc is listed, once for all sessions.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from slurm_reclaim.adapters.proc import cgroup
from slurm_reclaim.adapters.proc.job_list import JobList
from slurm_reclaim.adapters.proc.tree import PROC, namespace, resident
from slurm_reclaim.errors import Unavailable

FRESH = 1.0  # seconds in which processes are not listed anew in any case
OLD = 25.0  # seconds after which they are
_PASSES = 30.0  # seconds over which the sessions' lists are spread, so that passes cost the same
_AT_ONCE = 0.1  # seconds in which the meters of one pass ask whether anything ran
_MEMORY_OLD = 30.0  # seconds
_PATIENCE = 2.0  # seconds to wait for another thread's look
# A number may be given to another process between two looks: all are looked at again within so
# many of them.
_LAP = 60
_MOST_NAME = 400  # bytes of a command line
_OURS = (b"reclaim-relay", b"reclaim-witness")

# What is there while its owner is not: named, never counted. Matched in the command line.
_IDES = (
    (b"/.vscode-server/", "VS Code server"),
    (b"/.vscode-remote/", "VS Code server"),
    (b"/.cursor-server/", "Cursor server"),
    (b"/code-server/", "code-server"),
    (b"\0code-server\0", "code-server"),
    (b"/rserver\0", "RStudio"),
    (b"/rsession\0", "RStudio"),
)
# VS Code's extension host: looks for new ports as long as a page is open.
_SCANS = b"--type=extensionHost"


class Processes:
    """The processes of the node by what they belong to: the directory of their job, or their PID
    namespace where they are in no job's cgroup. One list of /proc for all sessions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at = -OLD
        self._key: dict[int, str] = {}
        self._groups: dict[str, set[int]] = {}
        self._recent: set[int] = set()
        self._versions: dict[str, int] = {}
        self._looks = 0

    def of(self, key: str, within: float) -> tuple[float, int, frozenset[int]]:
        """Those that belong to `key`, from a list at most `within` seconds old (`FRESH` is the
        least); when it was made (monotonic), and a number that is another one whenever they
        changed. Raises Unavailable."""
        if not self._lock.acquire(timeout=_PATIENCE):
            raise Unavailable("the processes can't be listed: /proc does not answer")
        try:
            if time.monotonic() - self._at > within:
                self._look()
            return self._at, self._versions.get(key, 0), frozenset(self._groups.get(key, ()))
        finally:
            self._lock.release()

    def _look(self) -> None:
        self._looks += 1
        listed = {int(name) for name in os.listdir(PROC) if name.isdigit()}
        new = listed - self._key.keys()
        for pid in self._key.keys() - listed:
            self._leave(pid)
        # one that was new the last time had perhaps yet to be moved to its cgroup
        again = self._recent | {p for p in self._key if p % _LAP == self._looks % _LAP}
        for pid in again & listed:
            if belongs_to(pid) != self._key[pid]:
                self._leave(pid)
                new.add(pid)
        for pid in new:
            key = self._key[pid] = belongs_to(pid)
            self._groups.setdefault(key, set()).add(pid)
            self._changed(key)
        self._recent = new
        self._at = time.monotonic()

    def _leave(self, pid: int) -> None:
        key = self._key.pop(pid)
        self._groups[key].discard(pid)
        self._changed(key)
        if not self._groups[key]:
            del self._groups[key], self._versions[key]

    def _changed(self, key: str) -> None:
        self._versions[key] = self._looks


def belongs_to(pid: int) -> str:
    """The key of a process; empty where it is gone or hidden even from root."""
    try:
        text = cgroup.contents(f"{PROC}/{pid}/cgroup").decode("utf-8", "backslashreplace")
        for line in text.split("\n"):
            if directory := cgroup.job_directory(line.split(":", 2)[-1]):
                return directory
        return f"pid:[{namespace(pid, 'pid')}]"
    except OSError:
        return ""


PROCESSES = Processes()


@dataclass(slots=True)
class Member:
    """A process of the job. `inside`: of the session itself (its PID namespace), not of another
    step; `parent` as at the first look; `tty` its controlling terminal's device number, 0 none;
    `ide` the name of the remote IDE it belongs to, else empty; `scans`: it reads of every process
    for as long as somebody is connected."""

    pid: int
    inside: bool
    parent: int
    tty: int
    ide: str
    scans: bool = False


class Census:
    """Of one incarnation of a session. `init` is its reclaim-init, `relay` the process that
    stands for it in Slurm; `old`: seconds after which its processes are listed anew."""

    def __init__(
        self,
        init: int,
        relay: int,
        uid: int,
        processes: Processes = PROCESSES,
        *,
        old: float = OLD,
    ) -> None:
        self._init, self._relay, self._uid = init, relay, uid
        self._processes = processes
        self._namespace = namespace(init, "pid")
        self._key = belongs_to(init)
        self._lock = threading.Lock()
        # which is why the list is the one that it was: of the job's cgroup or by its number
        self._version: frozenset[int] | int | None = None
        self._members: dict[int, Member] = {}
        self._recent: set[int] = set()
        self._ended: set[int] = set()
        self.directories = cgroup.of_process(init)
        self._jobs = _job_list(self.directories)
        self.clock = cgroup.CpuClock(self.directories)
        # of the last list: the session's own processes, its remote IDEs by name, and the terminals
        # of the job's other processes, by device number
        self.inside: list[int] = []
        self.ides: list[str] = []
        self.logins: set[int] = set()
        # monotonic seconds: when that list was as it is, and when it was made
        self.listed = self._looked = 0.0
        # another number whenever processes came or went
        self.changes = 0
        # processes that may have become another program, until somebody has looked (see Rates)
        self.stirred: set[int] = set()
        self._old = old
        share = (init * 0.618034) % 1.0 * _PASSES
        self._patience = min(old, share)  # of the first list
        self._memory, self._memory_at = 0, -_MEMORY_OLD
        self._memory_patience = share
        self._ran: float | None = None  # CPU seconds, read at `_ran_at` and the same since `_still`
        self._ran_at, self._still = -_AT_ONCE, math.inf

    def ran(self) -> float | None:
        """CPU seconds of everything that ever ran in the job, as of now; None where its cgroup does
        not tell."""
        ran, now = self.clock.seconds(), time.monotonic()
        if ran is None:
            self._still = math.inf
        elif ran != self._ran or self._still == math.inf:
            self._still = now
        self._ran, self._ran_at = ran, now
        return ran

    def still_since(self) -> float:
        """From when on nothing at all has run in the job, as its CPU time tells: monotonic seconds;
        infinite where something has or that is not known. Who does not run is born of nobody,
        reads, writes and sends nothing and takes no input."""
        if time.monotonic() - self._ran_at >= _AT_ONCE:
            self.ran()
        return self._still

    def members(self) -> dict[int, Member]:
        """By PID, from a list at most `old` seconds old, or an older one after which nothing
        ran. Not to be changed. Raises Unavailable where the session's processes can't be seen;
        none at all is a sign of that, too."""
        complete = self._version is not None and self.inside
        if complete and self._looked >= self.still_since() + FRESH:
            self.listed = self._ran_at
            return self._members
        if self.inside and time.monotonic() - self._looked <= self._patience:
            return self._members
        if not self._lock.acquire(timeout=_PATIENCE):
            raise Unavailable("the session's processes can't be listed: /proc does not answer")
        try:
            self._follow(self._patience if self.inside else min(FRESH, self._old))
            if not self.inside:
                raise Unavailable("no process of the session can be seen")
            return self._members
        finally:
            self._lock.release()

    def _follow(self, within: float) -> None:
        """Bring the list up to date if it is older than `within` seconds. Raises Unavailable."""
        version: frozenset[int] | int
        if self._jobs is not None:
            now = time.monotonic()
            if self._looked and now - self._looked <= within:
                return
            try:
                listed = version = self._jobs.pids()
            except OSError:
                self._jobs = None
        if self._jobs is None:
            now, version, listed = self._processes.of(self._key, within)
        if self._looked and now > self._looked:
            self._patience = self._old
        self.listed = self._looked = now
        if version != self._version or self._ended:
            self._look(listed)
            # those that are new are looked at once more: they had perhaps yet to become their
            # user's, or to start their program
            self._version = None if self._recent else version

    def memory(self) -> int:
        """Bytes of memory that the job holds: anonymous and shared memory where its cgroup counts
        that, else what its session's processes have in RAM. Up to half a minute old, for it is
        dear to read."""
        now = time.monotonic()
        if now - self._memory_at > self._memory_patience:
            counted = cgroup.memory_bytes(self.directories)
            self._memory = sum(map(resident, self.inside)) if counted is None else counted
            self._memory_patience = _MEMORY_OLD if self._memory_at > 0 else self._memory_patience
            self._memory_at = now
        return self._memory

    def _look(self, listed: frozenset[int]) -> None:
        known = self._members
        # A cgroup no longer names who has ended, but its counters go to its parent only when that
        # has waited for it.
        self._ended = {pid for pid in known.keys() - listed if _has_ended(pid)}
        listed = listed | self._ended
        members = {pid: known[pid] for pid in listed if pid in known and pid not in self._recent}
        recent = {pid for pid in listed if pid not in known}
        for pid in listed - members.keys():
            member = self._member(pid)
            if member is not None:
                members[pid] = member
        self._recent = recent & members.keys()
        self.changes += members.keys() != known.keys()
        self._members = members
        self.inside = [pid for pid, member in members.items() if member.inside]
        self.logins = {m.tty for m in members.values() if m.tty and not m.inside}
        self.ides = sorted({member.ide for member in members.values() if member.ide})

    def _member(self, pid: int) -> Member | None:
        """None for what serves the session or is Slurm's own."""
        if pid in (self._init, self._relay):
            return None
        try:
            name, fields = stat(pid)
            parent, tty = int(fields[1]), int(fields[4])
            inside = namespace(pid, "pid") == self._namespace
            if inside and parent == self._relay and name in _OURS:
                return None
            if not inside and _uid(pid) != self._uid:
                return None
            line = cgroup.contents(f"{PROC}/{pid}/cmdline", _MOST_NAME)[:_MOST_NAME]
        except (OSError, ValueError, IndexError):
            return None
        ide = next((label for mark, label in _IDES if mark in line), "")
        return Member(pid, inside, parent, tty, ide, bool(ide) and _SCANS in line)


def _job_list(directories: Mapping[str, str]) -> JobList | None:
    """Of the hierarchy by which Slurm follows a job's processes (proctrack/cgroup), or any other
    that it made for the job."""
    for name in (cgroup.V2, "freezer", *directories):
        if name in directories:
            return JobList(directories[name], version2=name == cgroup.V2)
    return None


def _has_ended(pid: int) -> bool:
    """Whether it is a process that its parent has yet to wait for."""
    try:
        return stat(pid)[1][0] in (b"Z", b"X")
    except (OSError, ValueError, IndexError):
        return False


def stat(pid: int) -> tuple[bytes, list[bytes]]:
    """The name of a process and the fields of /proc/PID/stat that follow it, the state first.
    Raises OSError, ValueError."""
    head, _, tail = cgroup.contents(f"{PROC}/{pid}/stat").rpartition(b") ")
    return head.partition(b"(")[2], tail.split()


def _uid(pid: int) -> int:
    """The real uid of a process. Raises OSError, IndexError."""
    text = cgroup.contents(f"{PROC}/{pid}/status")
    return int(text.partition(b"\nUid:")[2].split(None, 1)[0])
