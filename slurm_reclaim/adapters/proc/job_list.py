"""The processes in a job's cgroup, from the file by which each of its directories names them.

The kernel keeps these lists itself, so that they cost by the processes of the job and not by those
of the node, which has thousands of its own. A directory is listed only where its number of links
says that it has more or fewer below it than before. Version 2's files are kept open; through an
open file of version 1 the kernel gives the same list again for a second and longer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

_MOST_OPEN = 64  # files of one job
_MOST = 10_000  # directories of one job
_TRIES = 3
_BLOCK = 4096


@dataclass(slots=True)
class _Directory:
    """`fd` of its cgroup.procs, -1: to be opened each time; `links` as when it was listed."""

    fd: int
    links: int


class JobList:
    def __init__(self, directory: str, *, version2: bool) -> None:
        """`directory`: the job's, in a hierarchy in which all of its processes are, each in one of
        its steps; `version2`: whether that is cgroup version 2."""
        self._top = directory
        self._most_open = _MOST_OPEN if version2 else 0
        self._known: dict[str, _Directory] = {}

    def __del__(self) -> None:
        self._forget()

    def pids(self) -> frozenset[int]:
        """Those that live, of all steps; one that has ended and was not reaped is no longer among
        them. Raises OSError: the job's cgroup is gone, or does not tell."""
        for _ in range(_TRIES):
            try:
                if not self._known or self._differs():
                    self._walk()
                return self._read()
            except OSError:  # a step has ended meanwhile
                self._forget()
        self._walk()
        return self._read()

    def _differs(self) -> bool:
        return any(os.stat(path).st_nlink != one.links for path, one in self._known.items())

    def _walk(self) -> None:
        self._forget()
        waiting = [self._top]
        while waiting and len(self._known) < _MOST:
            path = waiting.pop()
            # before it is listed: what is made right after that shows the next time
            one = self._known[path] = _Directory(-1, os.stat(path).st_nlink)
            if path != self._top and len(self._known) <= self._most_open + 1:
                one.fd = os.open(f"{path}/cgroup.procs", os.O_RDONLY | os.O_CLOEXEC)
            if one.links != 2:
                with os.scandir(path) as entries:
                    waiting += [e.path for e in entries if e.is_dir(follow_symlinks=False)]

    def _read(self) -> frozenset[int]:
        found: set[int] = set()
        for path, one in self._known.items():
            if one.fd >= 0:
                found.update(map(int, _text(one.fd).split()))
                continue
            if path == self._top:
                continue
            fd = os.open(f"{path}/cgroup.procs", os.O_RDONLY | os.O_CLOEXEC)
            try:
                found.update(map(int, _text(fd).split()))
            finally:
                os.close(fd)
        found.discard(0)  # one that this PID namespace does not see
        return frozenset(found)

    def _forget(self) -> None:
        for one in self._known.values():
            if one.fd >= 0:
                os.close(one.fd)
        self._known = {}


def _text(fd: int) -> bytes:
    """All of it; the kernel gives a page of it at a time."""
    data = os.pread(fd, _BLOCK, 0)
    if len(data) < _BLOCK // 2:
        return data
    blocks, at = [data], len(data)
    while data := os.pread(fd, _BLOCK, at):
        blocks.append(data)
        at += len(data)
    return b"".join(blocks)
