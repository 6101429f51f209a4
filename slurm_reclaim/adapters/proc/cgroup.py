"""A job's own cgroup directories, found from one of its processes, and what they count.

Slurm's layouts differ (v1 `slurm[_NODE]/uid_N/job_N`, v2 `[NODE_]slurmstepd.scope/job_N` or, since
26.05, the SLUID in place of `job_N`); common to all is the step's directory below the job's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from slurm_reclaim.adapters.proc.tree import PROC, kernel_text

V2 = ""  # the name of the version 2 hierarchy among the controllers, as /proc/PID/cgroup has it
_MOST_BYTES = 4 << 20
_DEEPEST = 4  # step / user / task / what a step makes below
_MOST_DIRECTORIES = 500
_STEP = "/step_"
# slurmstepd's own leaf of a v2 step; it holds none of the job's processes
_NOT_THE_JOB = "slurm"


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


# -- processes -----------------------------------------------------------------------------------

# Where to look for a job's processes, best first: the freezer is proctrack/cgroup's own.
_LISTS = (V2, "freezer", "cpuacct", "memory", "cpuset", "devices", "pids")


def process_lists(directories: Mapping[str, str]) -> str:
    """The directory below which every process of the job is listed; empty where there is none."""
    return next((directories[name] for name in _LISTS if name in directories), "")


def below(directory: str) -> Iterator[str]:
    """The directory and those under it that may list processes of the job."""
    queue = [(directory, 0)]
    for _ in range(_MOST_DIRECTORIES):
        if not queue:
            return
        at, depth = queue.pop()
        yield at
        if depth < _DEEPEST:
            try:
                with os.scandir(at) as entries:
                    queue += [
                        (e.path, depth + 1)
                        for e in entries
                        if e.name != _NOT_THE_JOB and e.is_dir(follow_symlinks=False)
                    ]
            except OSError:
                continue


def processes(directory: str) -> list[int]:
    """The processes listed in this very directory; none where it is gone."""
    try:
        return [int(word) for word in contents(f"{directory}/cgroup.procs").split()]
    except OSError:
        return []


# -- counters ------------------------------------------------------------------------------------


def cpu_seconds(directories: Mapping[str, str]) -> float | None:
    """CPU time of everything that ever ran in the job's cgroup; None where none counts it."""
    try:
        if "cpuacct" in directories:
            return int(contents(f"{directories['cpuacct']}/cpuacct.usage")) / 1e9
        if V2 in directories:
            return _rows(f"{directories[V2]}/cpu.stat")["usage_usec"] / 1e6
    except (OSError, ValueError, KeyError):
        pass
    return None


def memory_bytes(directories: Mapping[str, str]) -> int | None:
    """Anonymous and shared memory of the job now (no page cache); None where none counts it."""
    try:
        if "memory" in directories:
            rows = _rows(f"{directories['memory']}/memory.stat")
            return rows["total_rss"] + rows.get("total_shmem", 0)
        if V2 in directories:
            rows = _rows(f"{directories[V2]}/memory.stat")
            return rows["anon"] + rows["shmem"]
    except (OSError, ValueError, KeyError):
        pass
    return None


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


def _rows(path: str) -> dict[str, int]:
    rows = (line.split() for line in contents(path).split(b"\n"))
    return {row[0].decode(): int(row[1]) for row in rows if len(row) == 2}
