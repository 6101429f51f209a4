"""The memory that a job may take, raised for as long as the state of its GPUs lies in its memory.

Slurm limits the job's cgroup and those of its step and task below it, all to the same. Each is
raised by the same amount and put back when the state is on the cards again. What the limits were
is in the session's record before the first is changed, so that an agent started anew puts them
back (S7).

What the job has taken for itself meanwhile can't be taken from it without ending it. Its limit is
put as low as that allows, and is not raised again before it is what it was.

The node's memory is everybody's: copies that are about to be made at once must fit together, or
the kernel would end a process of whichever job (S10).
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress

from slurm_reclaim.adapters.proc import cgroup, headroom
from slurm_reclaim.adapters.proc.cgroup import V2, contents
from slurm_reclaim.adapters.proc.tree import PROC, kernel_text
from slurm_reclaim.errors import OperationFailed
from slurm_reclaim.model.node_session import Limit, NodeSession
from slurm_reclaim.model.words import amount

log = logging.getLogger(__name__)

# The wider one first: version 1 refuses a limit of memory above that of memory and swap.
_FILES_V1 = ("memory.memsw.limit_in_bytes", "memory.limit_in_bytes")
_FILES_V2 = ("memory.max", "memory.high")
_NO_LIMIT = 1 << 62
# What the node itself must keep.
_NODE_KEEPS = 1 << 30
_PATIENCE = 10.0  # seconds until the state's copy has left the job's memory
# Above what is used, where a limit can't be put back: it must not end who is at work.
_SLACK = 64 << 20

_promising = threading.Lock()
# Bytes that are about to be taken, by whom; forgotten with them, whatever happens.
_promised: weakref.WeakKeyDictionary[MemoryLimit, int] = weakref.WeakKeyDictionary()


def copied(held: int) -> int:
    """Bytes of the job's memory that the copy of so much GPU memory takes, with some to spare."""
    return held + held // 20


class MemoryLimit:
    """Of one session's job. `allowed`: the site allows it to be raised. `save` makes the session's
    record durable."""

    def __init__(self, session: NodeSession, allowed: bool, save: Callable[[], None]) -> None:
        self._session = session
        self._allowed = allowed
        self._save = save

    def lacks(self, size: int, most: int) -> str:
        """Why `size` bytes more are too many, "" where there is room or it can be made by raising
        the limit by at most `most`."""
        node, room = headroom.of_node(), headroom.of_job(self._session.relay)
        keeps = _NODE_KEEPS
        if room is not None and room < size:
            job = f"the job may take {amount(room)} of memory more"
            if not self._allowed or size - room > most:
                return job
            if self._session.limits:
                return f"{job}: it uses what its limit was raised by before"
            job += ", and "
        else:
            job, keeps = "", _NODE_KEEPS if room is None else 0
        if most and node is not None and node < size + keeps:
            return f"{job}{amount(node)} of memory is available on the node"
        return ""

    def make_room(self, size: int) -> None:
        """For `size` bytes more; the limit is left where there is room or it must not be raised.
        Raises OperationFailed and StoreUnavailable before anything is changed, OSError."""
        self._promise(size)
        room = headroom.of_job(self._session.relay)
        if not self._allowed or room is None or room >= size:
            return
        limits = list(_limits(self._session.relay))
        if not self._session.limits:
            self._session.limits = tuple(Limit(path, before) for path, before in limits)
            self._save()
        for path, before in limits:
            _write(path, before + size - room)
        log.info("job=%s: memory limit raised by %s", self._session.job_id, amount(size - room))

    def _promise(self, size: int) -> None:
        node = headroom.of_node()
        with _promising:
            others = sum(bytes for limit, bytes in _promised.items() if limit is not self)
            # Only of those others is it not known that they find room: `lacks` looked at it alone.
            if others and node is not None and node < size + others + _NODE_KEEPS:
                raise OperationFailed(
                    f"{amount(node)} of memory is available on the node, and others that are "
                    f"being saved or restored take {amount(others)}, this one {amount(size)}"
                )
            _promised[self] = size

    def put_back(self) -> None:
        """As it was. A limit below what is used now would have the kernel end the session: that
        one is lowered to what is used, and kept in the record for the next time. Raises
        nothing."""
        with _promising:
            _promised.pop(self, None)
        deadline = time.monotonic() + _PATIENCE
        # The narrow ones first, then the wider ones around them.
        left = list(self._session.limits)[::-1]
        while left:
            left = [limit for limit in left if not _put_back(limit)]
            if not left or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        if left:
            for limit in left:
                _lower(limit)
            log.warning("job=%s: its memory limit stays raised", self._session.job_id)
        self._session.limits = tuple(left[::-1])


def _limits(pid: int) -> Iterator[tuple[str, int]]:
    """(file, limit) of each limit that counts for a process within its job, outermost first."""
    jobs = cgroup.of_process(pid)
    controller, files = ("memory", _FILES_V1) if "memory" in jobs else (V2, _FILES_V2)
    if controller not in jobs:
        return
    directory = jobs[controller]
    for step in ("", *_below(pid, controller)):
        directory = f"{directory}/{step}" if step else directory
        for name in files:
            with suppress(OSError, ValueError):
                limit = int(contents(f"{directory}/{name}"))  # "max" is none
                if limit < _NO_LIMIT:
                    yield f"{directory}/{name}", limit


def _below(pid: int, controller: str) -> list[str]:
    """The names of the process's cgroups below that of its job."""
    for line in kernel_text(PROC / str(pid) / "cgroup").split("\n"):
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(","):
            job = cgroup.job_directory(path)
            return path[len(job) :].strip("/").split("/") if job else []
    return []


def _write(path: str, limit: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(limit).encode())
    finally:
        os.close(fd)


def _put_back(limit: Limit) -> bool:
    folder, _, name = limit.path.rpartition("/")
    try:
        # Version 1 says EBUSY where more is used than page cache could make room for; version 2
        # ends processes until it fits.
        if name in _FILES_V2 and _needed(folder) > limit.before:
            return False
        _write(limit.path, limit.before)
    except FileNotFoundError:
        return True  # the job is gone
    except (OSError, ValueError, IndexError):
        return False
    return True


def _lower(limit: Limit) -> None:
    """To what is used now, and some more."""
    folder, _, name = limit.path.rpartition("/")
    with suppress(OSError, ValueError, IndexError):
        if name in _FILES_V2:
            used = _needed(folder)
        else:
            used = int(contents(f"{folder}/{name.replace('limit', 'usage')}"))
        wanted = max(limit.before, used + _SLACK)
        if wanted < int(contents(limit.path)):
            _write(limit.path, wanted)


def _needed(folder: str) -> int:
    """Bytes that a cgroup of version 2 uses; not the page cache, which the kernel takes back."""
    files = headroom.rows(f"{folder}/memory.stat", b"inactive_file", b"active_file")
    return int(contents(f"{folder}/memory.current")) - files
