"""Who is in a session, kept up to date at little cost: each process is looked at once.

`Census` lists the processes of a job from its own cgroup, which has the job's steps (srun) and
adopted logins (ssh) as well; without such a cgroup from one scan of /proc that all sessions of the
node share, which finds the session's own processes only.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

from slurm_reclaim.adapters.proc import cgroup
from slurm_reclaim.adapters.proc.tree import PROC, namespace
from slurm_reclaim.errors import Unavailable

FRESH = 1.0  # seconds in which a list is not made anew
WALK = 30.0  # seconds between two looks for new directories, and at who was new meanwhile
_MOST_NEW = 2000  # processes looked at in one go; the others follow
_PATIENCE = 2.0  # seconds to wait for another thread's look
_MOST_NAME = 400  # bytes of a command line

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


@dataclass(slots=True)
class Member:
    """A process of the job. `inside`: of the session itself (its PID namespace), not of another
    step; `parent` as at the first look; `tty` its controlling terminal's device number, 0 none;
    `ide` the name of the remote IDE it belongs to, else empty."""

    pid: int
    inside: bool
    parent: int
    tty: int
    ide: str


class Census:
    """Of one incarnation of a session. `init` is its reclaim-init, `relay` the process that
    stands for it in Slurm."""

    def __init__(self, init: int, relay: int, uid: int) -> None:
        self._init, self._relay, self._uid = init, relay, uid
        self._namespace = namespace(init, "pid")
        self._lock = threading.Lock()
        self._at = self._walked = -WALK
        self._listing: list[str] = []
        self._others: set[int] = set()
        self._recent: set[int] = set()
        self._members: dict[int, Member] = {}
        self.directories = cgroup.of_process(init)
        self._top = cgroup.process_lists(self.directories)

    def members(self) -> dict[int, Member]:
        """By PID; at most `FRESH` seconds old. Not to be changed. Raises Unavailable where the
        processes can't be seen; nobody at all is not a list but a sign of that."""
        if not self._lock.acquire(timeout=_PATIENCE):
            raise Unavailable("the session's processes can't be listed: /proc does not answer")
        try:
            if time.monotonic() - self._at > FRESH:
                self._look()
            if not any(member.inside for member in self._members.values()):
                raise Unavailable("no process of the session can be seen")
            return self._members
        finally:
            self._lock.release()

    def inside(self) -> int:
        """How many processes the session has. Raises Unavailable."""
        return sum(member.inside for member in self.members().values())

    def _look(self) -> None:
        if time.monotonic() - self._walked >= WALK:
            self._walk()
        listed = self._listed()
        known, others = self._members, self._others
        members = {pid: known[pid] for pid in listed if pid in known}
        self._recent.intersection_update(listed)
        new = [pid for pid in listed if pid not in known and pid not in others]
        for pid in new[:_MOST_NEW]:
            member = self._member(pid)
            if member is None:
                others.add(pid)
            else:
                members[pid] = member
                self._recent.add(pid)
        others.intersection_update(listed)
        self._members, self._at = members, time.monotonic()

    def _walk(self) -> None:
        """Look again at what may have changed: directories that were empty, and processes that
        were new and had yet to become their user's or to start their program."""
        self._walked = time.monotonic()
        self._others.clear()
        for pid in self._recent:
            self._members.pop(pid, None)
        self._recent.clear()
        if self._top:
            self._listing = [p for p in cgroup.below(self._top) if cgroup.processes(p)]

    def _listed(self) -> list[int]:
        if not self._top:
            return NAMESPACES.processes(self._namespace)
        return [pid for path in self._listing for pid in cgroup.processes(path)]

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
        return Member(pid, inside, parent, tty, ide)


_OURS = (b"reclaim-relay", b"reclaim-witness")


def stat(pid: int) -> tuple[bytes, list[bytes]]:
    """The name of a process and the fields of /proc/PID/stat that follow it, the state first.
    Raises OSError, ValueError."""
    head, _, tail = cgroup.contents(f"{PROC}/{pid}/stat").rpartition(b") ")
    return head.partition(b"(")[2], tail.split()


def _uid(pid: int) -> int:
    """The real uid of a process. Raises OSError, IndexError."""
    text = cgroup.contents(f"{PROC}/{pid}/status")
    return int(text.partition(b"\nUid:")[2].split(None, 1)[0])


class Namespaces:
    """Which PID namespace each process of the node is in: one scan for all sessions."""

    # A PID may have been given to another process meanwhile: look at all again now and then.
    _FORGET = 60.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at = self._forgot = -self._FORGET
        self._of: dict[int, int] = {}
        self._lists: dict[int, list[int]] = {}

    def processes(self, wanted: int) -> list[int]:
        if not self._lock.acquire(timeout=_PATIENCE):
            raise Unavailable("/proc does not answer")
        try:
            if time.monotonic() - self._at > FRESH:
                self._scan()
            return self._lists.get(wanted, []) if wanted else []
        finally:
            self._lock.release()

    def _scan(self) -> None:
        self._at = time.monotonic()
        if self._at - self._forgot >= self._FORGET:
            self._forgot, self._of = self._at, {}
        pids = [int(name) for name in os.listdir(PROC) if name.isdigit()]
        self._of = {pid: self._of.get(pid) or namespace(pid, "pid") for pid in pids}
        self._lists = {}
        for pid, inode in self._of.items():
            self._lists.setdefault(inode, []).append(pid)


NAMESPACES = Namespaces()
