"""Programs that the agent runs beside or inside a session, through reclaim-exec: in its namespaces,
as its own uid, with the few capabilities that an operation needs and nothing else of ours.

CRIU is one of them (command.py); the others read and write files as the session's owner."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.model.checkpoint import Credentials

LIBEXEC = Path("/usr/libexec/slurm-reclaim")
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/nonexistent"}
# For a CRIU whose images nobody takes any more: it lets go of the session and ends.
PATIENCE = 20.0  # seconds
_PIPE = 1 << 16  # bytes: a pipe that nobody reads holds no more
_MOST_SAID = 1 << 16


@dataclass(frozen=True, slots=True)
class Entry:
    """How to get to where a command runs. PIDs are the agent's; 0 leaves a step out. `join` are
    (PID, namespaces) pairs; `offsets` nanoseconds for a new time namespace; `tracer`: it holds
    processes, and neither want of memory nor a broken pipe kills it."""

    join: tuple[tuple[int, str], ...] = ()
    cgroups_of: int = 0
    affinity_of: int = 0
    offsets: tuple[int, int] | None = None
    block_io_uring: bool = False
    identity: Credentials | None = None
    caps: tuple[str, ...] = ()
    keep: tuple[int, ...] = ()
    tracer: bool = False

    def argv(self) -> list[str]:
        words: list[str] = []
        if self.block_io_uring:
            words.append("--block-io-uring")
        if self.cgroups_of:
            words += ["--cgroups-of", str(self.cgroups_of)]
        if self.affinity_of:
            words += ["--affinity-of", str(self.affinity_of)]
        for pid, kinds in self.join:
            words += ["--join", f"{pid}:{kinds}"]
        if self.offsets is not None:
            words += ["--time-offsets", f"{self.offsets[0]}:{self.offsets[1]}"]
        if self.identity is not None:
            words += ["--uid", str(self.identity.uid), "--gid", str(self.identity.gid)]
            words += ["--groups", ",".join(map(str, self.identity.groups))]
        if self.caps:
            words += ["--caps", ",".join(self.caps)]
        if self.tracer:
            words.append("--tracer")
        words += ["--keep-fds", ",".join(map(str, (0, 1, 2, *self.keep)))]
        return words


@dataclass(frozen=True, slots=True)
class Finished:
    """`status` is the exit code, negative for a signal; `late`: it was killed for its time."""

    status: int
    output: str
    late: bool = False

    @property
    def ok(self) -> bool:
        return self.status == 0


class Begun(Protocol):
    """A child process: what subprocess calls Popen."""

    pid: int

    def wait(self) -> int:
        """Its exit code, negative for a signal."""

    def kill(self) -> None: ...


class Begin(Protocol):
    """Starts a program in ENVIRONMENT; `keep` are the descriptors it is given besides these."""

    def __call__(
        self,
        words: Sequence[str],
        keep: Collection[int],
        stdin: BinaryIO,
        stdout: BinaryIO | int,
        stderr: int,
    ) -> Begun: ...


def spawned(
    words: Sequence[str],
    keep: Collection[int],
    stdin: BinaryIO,
    stdout: BinaryIO | int,
    stderr: int,
) -> Begun:
    """Without a copy of the agent's memory (vfork), as fork(2) has to make: some milliseconds for
    each program that a session waits for."""
    return subprocess.Popen(
        words, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=tuple(keep), env=ENVIRONMENT
    )


class Running:
    """A program at work, for `finish`. `ended` is a PID file descriptor (pidfd_open(2)), None where
    it ended so soon that it is reaped already."""

    def __init__(self, begun: Begun, said: BinaryIO) -> None:
        self.pid, self.said = int(begun.pid), said
        self._begun = begun
        self.ended: int | None = None
        with suppress(ProcessLookupError):
            self.ended = tree.pidfd(self.pid)

    def kill(self) -> None:
        if self.ended is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.ended, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code, negative for a signal."""
        return self._begun.wait()

    def end(self) -> None:
        """Whatever it was at; nothing where it is finished."""
        self.kill()
        self.wait()
        self.said.close()
        if self.ended is not None:
            os.close(self.ended)
            self.ended = None


def launch(
    words: Sequence[str],
    keep: Collection[int] = (),
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    begin: Begin = spawned,
) -> Running:
    """Start a program by its path; `keep` are the descriptors it is given. What it writes is kept,
    or with `stdout` what it writes to standard error. Into a pipe whose end is not waited for: a
    child of the program may hold it open."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        with open(os.devnull, "rb") as nothing:
            begun = begin(words, keep, stdin or nothing, stdout or writing, writing)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    said = os.fdopen(reading, "rb", buffering=0)
    try:
        return Running(begun, said)
    except BaseException:
        # No descriptor is left to hold it by; on its own it would go on.
        with suppress(ProcessLookupError):
            begun.kill()
        begun.wait()
        said.close()
        raise


def start(
    entry: Entry,
    command: Sequence[str],
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    begin: Begin = spawned,
) -> Running:
    """As `launch`, there where `entry` leads to."""
    words = [str(LIBEXEC / "reclaim-exec"), *entry.argv(), "--", *command]
    return launch(words, entry.keep, stdin, stdout, begin)


def finish(
    running: Running,
    timeout: float,
    ask: Callable[[], None] | None = None,
    patience: float = PATIENCE,
) -> Finished:
    """Wait; after `timeout` seconds the program is killed. With `ask` it is asked first to end by
    itself, and killed `patience` seconds later. Its end counts, not that of its output, which a
    child of its own may hold open."""
    said, late = bytearray(), False
    output, ended = running.said.fileno(), running.ended
    poll = select.poll()
    poll.register(output, select.POLLIN)
    if ended is not None:
        poll.register(ended, select.POLLIN)

    def over(seconds: float | None) -> bool:
        """Whether it ends within so many seconds."""
        if ended is None:
            return True
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if until is None else max(0.0, (until - time.monotonic()) * 1000)
            ready = {fd for fd, _ in poll.poll(left)}
            if ended in ready or not ready:
                return bool(ready)
            if not _hear(output, said):
                poll.unregister(output)

    try:
        if not over(timeout):
            late = True
            if ask is not None:
                ask()
            if ask is None or not over(patience):
                running.kill()
                over(None)
        _hear(output, said)
        status = running.wait()
    finally:
        running.end()
    return Finished(status, said.decode(errors="replace"), late and status != 0)


def _hear(fd: int, said: bytearray) -> bool:
    """Take what is in the pipe, and remember the end of it; whether more may come."""
    try:
        piece = os.read(fd, _PIPE)
    except BlockingIOError:
        return True
    said += piece
    del said[:-_MOST_SAID]
    return bool(piece)


def run(
    entry: Entry,
    command: Sequence[str],
    timeout: float = 60.0,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
) -> Finished:
    return finish(start(entry, command, stdin, stdout), timeout)
