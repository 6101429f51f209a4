"""The processes of a session as the kernel shows them.

A session is everything in the PID namespace of its reclaim-init, apart from reclaim-init itself
and the relay's witness (spank/session/witness.h), which serve it and are never dumped.
Its own /proc is reachable as /proc/<init>/root/proc, where PIDs are the session's.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_reclaim.model.checkpoint import Credentials
from slurm_reclaim.model.printable import escaped

PROC = Path("/proc")
TOO_LONG = "path too long"  # a descriptor's path that the kernel can't tell: over 4096 bytes
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """`pid` as the agent sees it, `inner` as the session does; `state` the letter of
    /proc/PID/stat (T is stopped); `start` clock ticks since boot."""

    pid: int
    inner: int
    parent: int
    name: str
    state: str
    start: int
    status: dict[str, str]

    @property
    def uids(self) -> tuple[int, ...]:
        return tuple(int(x) for x in self.status["Uid"].split())

    def __str__(self) -> str:
        return f"{escaped(self.name)} ({self.inner})"


def kernel_text(path: Path) -> str:
    """A file of /proc. Names in it are the users' own and need be no UTF-8; what is not is shown
    as `\\xff`. Split it on "\\n" only: `splitlines` knows other line ends, and a name may hold
    them."""
    return path.read_bytes().decode("utf-8", "backslashreplace")


def command_line(pid: int) -> list[str]:
    """Its words; none where the process is gone or is the kernel's."""
    try:
        return kernel_text(PROC / str(pid) / "cmdline").rstrip("\0").split("\0")
    except OSError:
        return []


def printable(name: str) -> str:
    """A file name as it can be written into JSON and shown to people."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def descriptors(process: Path) -> Iterator[tuple[str, str]]:
    """(number, what it leads to) of each open file of a process (`/proc/PID`). What is closed
    meanwhile is left out; none where the process is gone."""
    try:
        names = os.listdir(process / "fd")
    except (FileNotFoundError, ProcessLookupError):
        return
    for name in names:
        try:
            target = os.readlink(process / "fd" / name)
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            target = TOO_LONG
        yield name, target


def socket_inode(target: str) -> int | None:
    """Of the socket that a descriptor leads to; None where it is something else."""
    return int(target[8:-1]) if target.startswith("socket:[") else None


def start_time(pid: int) -> int:
    """Clock ticks after boot at which `pid` started; 0 if there is no such process. With the PID
    it names a process for good, since PIDs are reused."""
    try:
        # Asked of every session for every report: an open() of Python's costs as much again.
        fd = os.open(f"{PROC}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.read(fd, 4096)
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(b")")[2].split(None, 20)[19])


def boot_id() -> str:
    """The kernel's name for its own run, a new one at each boot."""
    return kernel_text(PROC / "sys/kernel/random/boot_id").strip()


def terminal(pid: int) -> int:
    """Device number of the process's controlling terminal; 0 where it has none or is gone."""
    try:
        stat = kernel_text(PROC / str(pid) / "stat")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[4])


def same_process(pid: int, start: int) -> bool:
    return pid > 0 and start > 0 and start_time(pid) == start


class Followed:
    """A process of which is asked often whether it is still there. A file of its is kept open: that
    stays this process's, whoever gets the number after it."""

    def __init__(self, pid: int, start: int) -> None:
        self.pid, self.start = pid, start
        self._fd = -1

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def lives(self) -> bool:
        """As `same_process` has it: one that nobody has waited for is still there."""
        if self._fd >= 0:
            try:
                os.pread(self._fd, 1, 0)
                return True
            except ProcessLookupError:
                return False
        if not same_process(self.pid, self.start):
            return False
        with suppress(OSError):
            fd = os.open(f"{PROC}/{self.pid}/comm", os.O_RDONLY | os.O_CLOEXEC)
            if same_process(self.pid, self.start):
                self._fd = fd
            else:
                os.close(fd)
        return True


def adjust_oom_score(pid: int, score: int) -> None:
    """Whether the kernel, short of memory, takes this process sooner or later than others: 1000 is
    first, -1000 never."""
    with suppress(OSError):  # it has ended, or we lack CAP_SYS_RESOURCE
        (PROC / str(pid) / "oom_score_adj").write_text(str(score))


def namespace(pid: int, kind: str) -> int:
    """Inode of the namespace; 0 if the process is gone, or hidden even from root."""
    try:
        return os.stat(f"{PROC}/{pid}/ns/{kind}").st_ino
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0


def read(pid: int, proc: Path = PROC) -> Process | None:
    """None where there is no such process. With the session's own /proc as `proc`, PIDs are the
    session's throughout."""
    try:
        text = kernel_text(proc / str(pid) / "status")
        stat = kernel_text(proc / str(pid) / "stat")
    except (FileNotFoundError, ProcessLookupError):
        return None
    status = dict(line.split(":\t", 1) for line in text.split("\n") if ":\t" in line)
    fields = stat.rpartition(")")[2].split()
    return Process(
        pid=pid,
        inner=int(status["NSpid"].split()[-1]),
        parent=int(status["PPid"]),
        name=status["Name"],
        state=fields[0],
        start=int(fields[19]),
        status=status,
    )


def resident(pid: int) -> int:
    """Bytes of memory that the process has in RAM, shared ones counted; 0 where it is gone."""
    try:
        return int(kernel_text(PROC / str(pid) / "statm").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def members(init: int) -> list[Process]:
    """Every process of the session whose reclaim-init is `init`, zombies included, ordered by
    inner PID. Empty where the namespace is gone."""
    wanted = namespace(init, "pid")
    own = read(init)
    if not wanted or own is None:
        return []
    found = []
    for entry in os.scandir(PROC):
        if not entry.name.isdigit() or int(entry.name) == init:
            continue
        if namespace(int(entry.name), "pid") != wanted:
            continue
        process = read(int(entry.name))
        if process is not None and not _witness(process, own.parent):
            found.append(process)
    return sorted(found, key=lambda p: p.inner)


def _witness(process: Process, relay: int) -> bool:
    return process.parent == relay and process.name in ("reclaim-relay", "reclaim-witness")


def outside(tree: Iterable[Process], root: int) -> list[Process]:
    """Processes that are not `root` (agent's view) nor below it."""
    by_pid = {p.pid: p for p in tree}
    strays = []
    for process in by_pid.values():
        at: Process | None = process
        while at is not None and at.pid != root:
            at = by_pid.get(at.parent)
        if at is None:
            strays.append(process)
    return strays


def credentials(process: Process) -> Credentials:
    status = process.status
    return Credentials(
        uid=int(status["Uid"].split()[1]),
        gid=int(status["Gid"].split()[1]),
        groups=tuple(int(g) for g in status["Groups"].split()),
        cap_bounding=int(status["CapBnd"], 16),
        no_new_privs=status.get("NoNewPrivs", "0") == "1",
    )


def pidfd(pid: int) -> int:
    """A PID file descriptor of a process. Raises ProcessLookupError where it is gone, OSError."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        # So Linux 6.12 says it (6.18 no longer) of a process that was reaped while its PID is still
        # that of a session or group, as a batch script's is for as long as its children live.
        if error.errno == errno.EINVAL and pid > 0:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from None
        raise


def signal_all(processes: Iterable[Process], number: int) -> None:
    """Send a signal to each, by pidfd, so that a reused PID is never hit. Raises the first OSError
    when all others have had theirs."""
    failed = None
    for process in processes:
        try:
            _signal(process, number)
        except ProcessLookupError:
            continue
        except OSError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def _signal(process: Process, number: int) -> None:
    fd = pidfd(process.pid)
    try:
        if start_time(process.pid) == process.start:
            signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)


def continued(stopped: Iterable[Process]) -> Process | None:
    """One of these that runs again; None where there is none."""
    for process in stopped:
        now = read(process.pid)
        if now is not None and now.start == process.start and now.state not in "TtZX":
            return now
    return None


def kill_all(init: int, *, timeout: float = 30.0) -> bool:
    """SIGKILL every process of the session but reclaim-init until none is left but zombies that
    their parent has yet to reap; False where some are left after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        left = [p for p in members(init) if p.state not in "ZX"]
        if not left:
            return True
        if time.monotonic() > deadline:
            return False
        with suppress(OSError):  # who could not be signalled is still there the next time
            signal_all(left, signal.SIGKILL)
        time.sleep(0.01)


def clocks(pid: int) -> tuple[int, int]:
    """CLOCK_MONOTONIC and CLOCK_BOOTTIME in nanoseconds as `pid` sees them now: ours plus the
    offsets of its time namespace (time_namespaces(7))."""
    monotonic, boottime = clock_offsets(pid)
    return (
        time.clock_gettime_ns(time.CLOCK_MONOTONIC) + monotonic,
        time.clock_gettime_ns(time.CLOCK_BOOTTIME) + boottime,
    )


def clock_offsets(pid: int) -> tuple[int, int]:
    """Offsets of the process's time namespace in nanoseconds, (0, 0) where there is none."""
    try:
        lines = kernel_text(PROC / str(pid) / "timens_offsets").splitlines()
    except FileNotFoundError:
        return 0, 0
    offsets = {"monotonic": 0, "boottime": 0}
    for line in lines:
        name, seconds, nanoseconds = line.split()
        offsets[name] = int(seconds) * 10**9 + int(nanoseconds)
    return offsets["monotonic"], offsets["boottime"]
