"""The processes in a job's cgroup, from the file by which each of its directories names them.

The kernel keeps these lists itself, so that they cost by the processes of the job and not by those
of the node, which has thousands of its own. A directory is listed only where its number of links
says that it has more or fewer below it than before. The directories are kept open, for the way
there costs as much as half of a list, and so are version 2's files; through an open file of version
1 the kernel gives the same list again for a second and longer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

_MOST_OPEN = 64  # directories of one job, and files in them
_MOST = 10_000  # directories of one job
_TRIES = 3
_BLOCK = 4096


@dataclass(slots=True)
class _Directory:
    """`fd` of it and `procs` of its cgroup.procs, -1: to be opened each time; `links` as when it
    was listed. Of one that was removed the kernel says so when its cgroup.procs is read."""

    path: str
    fd: int
    links: int
    procs: int = -1

    def differs(self) -> bool:
        return os.stat(self.path if self.fd < 0 else self.fd).st_nlink != self.links

    def open_procs(self) -> int:
        flags = os.O_RDONLY | os.O_CLOEXEC
        if self.fd < 0:
            return os.open(f"{self.path}/cgroup.procs", flags)
        return os.open("cgroup.procs", flags, dir_fd=self.fd)

    def pids(self) -> bytes:
        if self.procs >= 0:
            return _text(self.procs)
        fd = self.open_procs()
        try:
            return _text(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        for fd in (self.fd, self.procs):
            if fd >= 0:
                os.close(fd)


class JobList:
    def __init__(self, directory: str, *, version2: bool) -> None:
        """`directory`: the job's, in a hierarchy in which all of its processes are, each in one of
        its steps; `version2`: whether that is cgroup version 2."""
        self._top = directory
        self._keep_procs = version2
        self._known: dict[str, _Directory] = {}
        self._texts: list[bytes] = []
        self._pids = frozenset[int]()

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
        return any(one.differs() for one in self._known.values())

    def _walk(self) -> None:
        self._forget()
        waiting = [self._top]
        while waiting and len(self._known) < _MOST:
            path = waiting.pop()
            kept = len(self._known) < _MOST_OPEN
            fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if kept else -1
            # before it is listed: what is made right after that shows the next time
            one = self._known[path] = _Directory(path, fd, os.stat(path if fd < 0 else fd).st_nlink)
            if path != self._top and kept and self._keep_procs:
                one.procs = one.open_procs()
            if one.links != 2:
                with os.scandir(path) as entries:
                    waiting += [e.path for e in entries if e.is_dir(follow_symlinks=False)]

    def _read(self) -> frozenset[int]:
        texts = [one.pids() for path, one in self._known.items() if path != self._top]
        if texts != self._texts:
            # 0 is one that this PID namespace does not see
            self._pids = frozenset(map(int, b"".join(texts).split())) - {0}
            self._texts = texts
        return self._pids

    def _forget(self) -> None:
        for one in self._known.values():
            one.close()
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
