"""A job's own cgroup directories, found from one of its processes, and what they count.

Slurm's layouts differ (v1 `slurm[_NODE]/uid_N/job_N`, v2 `[NODE_]slurmstepd.scope/job_N` or, since
26.05, the SLUID in place of `job_N`); common to all is the step's directory below the job's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from slurm_reclaim.adapters.proc.tree import PROC, kernel_text

V2 = ""  # the name of the version 2 hierarchy among the controllers, as /proc/PID/cgroup has it
_MOST_BYTES = 4 << 20
_STEP = "/step_"


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted hierarchy: `root` is the cgroup seen at `point`, "" the whole of it."""

    root: str
    point: str
    controllers: frozenset[str]


def mounts(mountinfo: str) -> list[Mount]:
    """The cgroup mounts of a /proc/PID/mountinfo text."""
    found = []
    for line in mountinfo.split("\n"):
        before, dash, after = line.partition(" - ")
        kind, words = after.split(" ")[0], before.split(" ")
        if not dash or kind not in ("cgroup", "cgroup2") or len(words) < 5:
            continue
        options = frozenset(after.split(" ")[-1].split(","))
        root = _unescaped(words[3])
        names = frozenset({V2}) if kind == "cgroup2" else options - {"rw", "ro", V2}
        found.append(Mount("" if root == "/" else root, _unescaped(words[4]), names))
    return found


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), path)


def job_directory(path: str) -> str:
    """The job's directory in the cgroup path of one of its processes; empty where it has none."""
    head, step, _ = path.partition(_STEP)
    return head if step else ""


def job_directories(cgroups: str, mounted: Iterable[Mount]) -> dict[str, str]:
    """By controller ("" for version 2) the job's directory, from the /proc/PID/cgroup text of one
    of its processes. Hierarchies in which the job has none, or that are not mounted, are left
    out."""
    mounted = list(mounted)
    found = {}
    for line in cgroups.split("\n"):
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        directory = job_directory(path)
        if not directory:
            continue
        for name in names.split(","):
            for mount in mounted:
                below = directory == mount.root or directory.startswith(mount.root + "/")
                if name in mount.controllers and below:
                    found[name] = mount.point + directory[len(mount.root) :]
                    break
    return found


def of_process(pid: int) -> dict[str, str]:
    """`job_directories` of a living process; empty where it is gone."""
    try:
        cgroups = kernel_text(PROC / str(pid) / "cgroup")
        return job_directories(cgroups, mounts(kernel_text(PROC / "self/mountinfo")))
    except OSError:
        return {}


def contents(path: str, most: int = _MOST_BYTES) -> bytes:
    """A file of a kernel file system in full, at most `most` bytes. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, 4096)
        if len(data) < 2048:
            return data
        blocks, size = [data], len(data)
        while size < most and (data := os.read(fd, 65536)):
            blocks.append(data)
            size += len(data)
        return b"".join(blocks)
    finally:
        os.close(fd)


# -- counters ------------------------------------------------------------------------------------


class CpuClock:
    """CPU time of everything that ever ran in the job's cgroup. Its file is kept open."""

    def __init__(self, directories: Mapping[str, str]) -> None:
        self._fd = -1
        self._row, self._unit = b"", 1e9
        path = f"{directories.get('cpuacct', '')}/cpuacct.usage"
        if "cpuacct" not in directories and V2 in directories:
            path = f"{directories[V2]}/cpu.stat"
            self._row, self._unit = b"usage_usec ", 1e6
        with suppress(OSError):
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    @property
    def counts(self) -> bool:
        """False where no cgroup of the job counts CPU time."""
        return self._fd >= 0

    def seconds(self) -> float | None:
        """None where it can't be read: the cgroup is gone."""
        try:
            return _row(os.pread(self._fd, 4096, 0), self._row) / self._unit
        except (OSError, ValueError, IndexError):
            return None


def memory_bytes(directories: Mapping[str, str]) -> int | None:
    """Anonymous and shared memory of the job now (no page cache); None where none counts it."""
    try:
        if "memory" in directories:
            text = contents(f"{directories['memory']}/memory.stat")
            return _row(text, b"\ntotal_rss ") + _row(text, b"\ntotal_shmem ")
        if V2 in directories:
            text = contents(f"{directories[V2]}/memory.stat")
            return _row(text, b"anon ") + _row(text, b"\nshmem ")
    except (OSError, ValueError, IndexError):
        pass
    return None


def oom_kills(cgroups: str, mounted: Iterable[Mount]) -> int:
    """How often the kernel, for want of memory, has killed in the cgroup of a process of which this
    is the /proc/PID/cgroup text; 0 where none counts it. Version 1 counts in that one only."""
    mounted = list(mounted)
    for line in cgroups.split("\n"):
        names, _, path = line.partition(":")[2].partition(":")
        for mount in mounted:
            name = next((n for n in ("memory", V2) if n in names.split(",")), None)
            if name not in mount.controllers or not (path + "/").startswith(mount.root + "/"):
                continue
            file = "memory.events" if name == V2 else "memory.oom_control"
            with suppress(OSError, ValueError, IndexError):
                place = f"{mount.point}{path[len(mount.root) :]}"
                return _row(contents(f"{place}/{file}"), b"oom_kill ")
    return 0


def oom_kills_of(pid: int) -> int:
    try:
        cgroups = kernel_text(PROC / str(pid) / "cgroup")
        return oom_kills(cgroups, mounts(kernel_text(PROC / "self/mountinfo")))
    except OSError:
        return 0


def block_bytes(directories: Mapping[str, str]) -> int | None:
    """Bytes read from and written to block devices; None where the job's cgroup does not count
    them (Slurm makes no blkio cgroups; v2 needs the io controller)."""
    try:
        if "blkio" in directories:
            name = "blkio.throttle.io_service_bytes_recursive"
            text = contents(f"{directories['blkio']}/{name}")
            return sum(int(line.split()[2]) for line in text.split(b"\n") if b" Total " in line)
        if V2 in directories:
            text = contents(f"{directories[V2]}/io.stat")
            return sum(int(n) for n in re.findall(rb"[rw]bytes=(\d+)", text))
    except (OSError, ValueError, IndexError):
        pass
    return None


def _row(text: bytes, name: bytes) -> int:
    """The number that follows `name`. Raises ValueError, IndexError."""
    return int(text[text.index(name) + len(name) :].split(None, 1)[0])
