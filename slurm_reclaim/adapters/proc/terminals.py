"""Terminals of a session: when somebody last typed.

The kernel writes the time of the last input that was read from a terminal into the atime of its
slave, in whole seconds, and not again within the same 8 seconds (tty_update_time). Output moves
the mtime only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import termios
from collections.abc import Iterable
from contextlib import suppress

from slurm_reclaim.adapters.proc.tree import (
    PROC,
    Followed,
    descriptors,
    kernel_text,
    start_time,
)

GRAIN = 8  # seconds
_UNIX98 = range(136, 144)  # major device numbers of /dev/pts/N
_MOST = 4096  # terminals of one session


class Folder:
    """The private /dev/pts of the session of this reclaim-init. It is kept open, for the way there
    costs more than what is done there."""

    def __init__(self, init: int) -> None:
        self._init = Followed(init, start_time(init))
        self._fd = -1

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def atimes(self) -> dict[str, float]:
        """Of its terminals, Unix seconds, by name. Raises OSError where it can't be seen."""
        if not self._init.lives():
            # what is kept open outlives the session
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if self._fd < 0:
            path = f"{PROC}/{self._init.pid}/root/dev/pts"
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found: dict[str, float] = {}
        names = [name for name in os.listdir(self._fd) if name.isdigit()]
        for name in names[:_MOST]:
            with suppress(OSError):
                found[f"pts/{name}"] = os.stat(name, dir_fd=self._fd).st_atime
        return found


def of_session(init: int) -> dict[str, float]:
    """`Folder.atimes`, asked once."""
    return Folder(init).atimes()


def of_devices(devices: Iterable[int]) -> dict[str, float]:
    """The atimes of terminals of the node (logins by ssh, `srun --pty`) by the device numbers
    that /proc/PID/stat gives as tty_nr; those that are gone are left out."""
    found = {}
    for device in set(devices):
        number = _number(device)
        if number < 0:
            continue
        try:
            facts = os.stat(f"/dev/pts/{number}")
        except OSError:
            continue
        if facts.st_rdev == device:
            found[f"login on pts/{number}"] = facts.st_atime
    return found


def _number(device: int) -> int:
    """The N of /dev/pts/N; -1 for what is no such terminal."""
    major, minor = os.major(device), os.minor(device)
    return (major - _UNIX98.start) * 256 + minor if major in _UNIX98 else -1


def in_use(init: int) -> set[int]:
    """Numbers of the terminals that control a process of the session. Others are left alone: there
    nobody reads, and to open and close the only user's end of a terminal tells the program at the
    other end that its user hung up."""
    found: set[int] = set()
    base = PROC / str(init) / "root/proc"  # which shows the session's processes only
    try:
        names = os.listdir(base)
    except OSError:
        return found
    for name in names:
        with suppress(OSError, ValueError, IndexError):
            if name.isdigit():
                status = kernel_text(base / name / "stat")
                device = int(status.rpartition(")")[2].split()[4])
                found.add(_number(device))
    return found - {-1}


def last_input(init: int) -> float:
    """Unix seconds of the last input read on any terminal of the session's private devpts; 0 if
    there is none."""
    try:
        return max(of_session(init).values(), default=0.0)
    except OSError:
        return 0.0


def input_since(since: float, init: int, devices: Iterable[int] = ()) -> list[str]:
    """Terminals of the session, and of logins by their `devices`, in which something may have been
    typed after `since`. Input in the same 8 seconds as earlier input leaves no trace of its own,
    so that the whole of them counts. Raises OSError where they can't be seen."""
    found = {**of_devices(devices), **of_session(init)}
    return [name for name, at in sorted(found.items()) if at // GRAIN >= since // GRAIN]


def _opened(init: int) -> set[int]:
    """Numbers of the terminals that a process of the session has open: to open and close one that
    nobody has would hang it up."""
    found: set[int] = set()
    base = PROC / str(init) / "root/proc"  # which shows the session's processes only
    with suppress(OSError):
        for process in filter(str.isdigit, os.listdir(base)):
            with suppress(OSError):
                for _, target in descriptors(base / process):
                    name = target.removeprefix("/dev/pts/")
                    if name != target and name.isdecimal():
                        found.add(int(name))
    return found


def unread(init: int) -> list[str]:
    """Terminals of the session in which input waits that no process has read yet."""
    waiting = []
    for name in sorted(_opened(init))[:_MOST]:
        try:
            # O_NOCTTY: an agent without controlling terminal must not get this one
            fd = os.open(
                f"{PROC}/{init}/root/dev/pts/{name}",
                os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC,
            )
        except OSError:
            continue
        try:
            (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
        except OSError:
            count = 0
        finally:
            os.close(fd)
        if count:
            waiting.append(f"pts/{name}")
    return waiting
