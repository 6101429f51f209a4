"""Bytes over the sessions' TCP connections to elsewhere: one look at the node's sockets for all.

A socket belongs to the session whose process holds it. That is looked up once, when its inode is
seen first; afterwards the kernel's list alone tells how much it carried.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slurm_reclaim.adapters.proc import sockdiag
from slurm_reclaim.adapters.proc.sockdiag import Tcp
from slurm_reclaim.adapters.proc.tree import PROC
from slurm_reclaim.errors import Unavailable

OLD = 15.0  # seconds after which the kernel is asked again: it goes through a large table
FRESH = 1.0  # seconds in which it is not asked again in any case
_PATIENCE = 4.0  # seconds to wait for another thread's look
_MOST_LINKS = 50_000  # descriptors looked at for one session in one go
# A socket that no session holds may be inherited or passed to one: looked for again at these looks.
_AGAIN = frozenset({1, 2, 6, 30})


@dataclass(slots=True)
class Holdings:
    """What one session holds. `at` monotonic seconds of the last look that told, `rate` bytes per
    second up to then (None after the first), `counted` bytes by inode then; `holders` processes
    that have held sockets; `strange` inodes of its user's that it does not hold, and for how many
    looks that is so."""

    uid: int
    counted: dict[int, int] = field(default_factory=dict)
    own: set[int] = field(default_factory=set)
    holders: set[int] = field(default_factory=set)
    strange: dict[int, int] = field(default_factory=dict)
    begun: bool = False
    at: float = 0.0
    rate: float | None = None


class Connections:
    """Of the whole node; used by one thread for each session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at = -OLD
        self._messages: dict[int, list[bytes]] = {}  # by uid
        self._parsed: dict[int, list[Tcp]] = {}  # of those that were asked for

    def of_user(self, uid: int, within: float) -> tuple[float, list[Tcp]]:
        """Connections made by processes of this user, at most `within` seconds old, and when that
        was (monotonic). Raises Unavailable."""
        if not self._lock.acquire(timeout=_PATIENCE):
            raise Unavailable("the kernel does not tell of its sockets")
        try:
            if time.monotonic() - self._at > within:
                self._messages, self._parsed = sockdiag.connections(), {}
                self._at = time.monotonic()
            if uid not in self._parsed:
                self._parsed[uid] = [*map(sockdiag.parsed, self._messages.get(uid, ()))]
            return self._at, self._parsed[uid]
        finally:
            self._lock.release()

    def rate(self, holdings: Holdings, pids: Iterable[int]) -> float:
        """Bytes per second that the session's connections to elsewhere carried between the two
        last looks, those made in between in full. Raises Unavailable where that is not known."""
        at, every = self.of_user(holdings.uid, FRESH if holdings.rate is None else OLD)
        if at > holdings.at:
            begun = holdings.begun
            carried = self._carried(holdings, every, pids)
            holdings.rate = carried / (at - holdings.at) if begun else None
            holdings.at = at
        if holdings.rate is None:
            raise Unavailable("counted for the first time")
        return holdings.rate

    def _carried(self, holdings: Holdings, every: list[Tcp], pids: Iterable[int]) -> int:
        _attribute(holdings, every, pids)
        mine = [each for each in every if each.inode in holdings.own]
        total, counted = 0, {}
        for each in to_elsewhere(mine):
            if each.received < 0:
                raise Unavailable("this kernel does not count the bytes of connections")
            now = each.sent + each.received
            before = holdings.counted.get(each.inode, 0 if holdings.begun else now)
            # an inode of a socket that was closed may be another's now
            total += now - before if now >= before else now
            counted[each.inode] = now
        holdings.counted, holdings.begun = counted, True
        return total


def to_elsewhere(mine: list[Tcp]) -> list[Tcp]:
    """Without those of which the session has the other end, too."""
    ends = {(each.local, each.remote) for each in mine}
    return [each for each in mine if (each.remote, each.local) not in ends]


def _attribute(holdings: Holdings, every: list[Tcp], pids: Iterable[int]) -> None:
    """Bring `own` and `strange` up to date. Raises Unavailable: too many descriptors to look at."""
    inodes = {each.inode for each in every}
    holdings.own &= inodes
    strange = {inode: looks + 1 for inode, looks in holdings.strange.items() if inode in inodes}
    wanted = {i for i in inodes - holdings.own if strange.get(i, 0) in (0, *_AGAIN)}
    holdings.strange = strange
    if not wanted:
        return
    living = list(pids)
    holdings.holders.intersection_update(living)
    order = sorted(living, key=lambda pid: pid not in holdings.holders)
    links = 0
    for pid in order:
        found, looked = held_by(pid, wanted, _MOST_LINKS - links)
        links += looked
        if found:
            holdings.holders.add(pid)
            holdings.own |= found
            wanted -= found
        if not wanted:
            return
        if links >= _MOST_LINKS:
            raise Unavailable("the session has too many open files to find its connections")
    strange.update({inode: strange.get(inode, 0) for inode in wanted})


def held_by(pid: int, wanted: Mapping[int, object] | set[int], most: int) -> tuple[set[int], int]:
    """Which of the `wanted` socket inodes a process holds, and how many descriptors were looked
    at, `most` at most."""
    found: set[int] = set()
    looked = 0
    base = f"{PROC}/{pid}/fd"
    try:
        with os.scandir(base) as entries:
            for entry in entries:
                looked += 1
                if looked > most:
                    break
                try:
                    target = os.readlink(entry.path)
                except OSError:
                    continue
                if target.startswith("socket:[") and int(target[8:-1]) in wanted:
                    found.add(int(target[8:-1]))
    except OSError:
        pass
    return found, looked
