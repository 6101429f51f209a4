"""CRIU's command lines, run through reclaim-exec: in the session's namespaces, as its own uid,
with the few capabilities the operation needs and nothing else of ours."""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import sh

from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.model.checkpoint import Credentials

LIBEXEC = Path("/usr/libexec/slurm-reclaim")
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/nonexistent"}
# For a CRIU whose images nobody takes any more: it lets go of the session and ends.
PATIENCE = 20.0  # seconds

# proof: dump needs SYS_PTRACE to seize, NET_ADMIN to repair TCP, SYS_ADMIN to suspend a seccomp
# filter; restore needs SETPCAP where the bounding set differs
DUMP_CAPS = ("checkpoint_restore", "sys_ptrace", "net_admin")
SECCOMP_CAPS = ("sys_admin",)
# open_by_handle_at(2), by which CRIU finds the path of an inotify watch
INOTIFY_CAPS = ("dac_read_search",)
RESTORE_CAPS = ("checkpoint_restore", "setpcap", "net_admin")
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


class Running:
    """A command at work, for `finish`. `ended` is a PID file descriptor (pidfd_open(2)), None where
    it ended so soon that sh had reaped it already."""

    def __init__(self, command: sh.RunningCommand, said: BinaryIO) -> None:
        self.pid, self.said = int(command.pid), said
        self._command = command
        self.ended: int | None = None
        with suppress(ProcessLookupError):
            self.ended = tree.pidfd(self.pid)

    def kill(self) -> None:
        if self.ended is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.ended, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code, negative for a signal."""
        self._command.wait()
        return int(self._command.exit_code or 0)

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
) -> Running:
    """Start a program by its path; `keep` are the descriptors it is given. What it writes is kept,
    or with `stdout` what it writes to standard error. Into a pipe of our own: sh would wait for its
    end, which a child of the program may hold open, and keep all of it."""
    for fd in keep:
        os.set_inheritable(fd, True)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        with open(os.devnull, "rb") as nothing:
            command = sh.Command(words[0])(
                *words[1:],
                _env=ENVIRONMENT,
                _pass_fds=set(keep),
                _bg=True,
                _bg_exc=False,
                _tty_out=False,
                _in=stdin or nothing,
                _out=stdout or writing,
                _err=writing,
                _ok_code=list(range(-64, 256)),
            )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    said = os.fdopen(reading, "rb", buffering=0)
    try:
        return Running(command, said)
    except BaseException:
        # No descriptor is left to hold it by; on its own it would go on.
        with suppress(ProcessLookupError):
            command.kill()
        command.wait()
        said.close()
        raise


def start(
    entry: Entry,
    command: Sequence[str],
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
) -> Running:
    """As `launch`, there where `entry` leads to."""
    words = [str(LIBEXEC / "reclaim-exec"), *entry.argv(), "--", *command]
    return launch(words, entry.keep, stdin, stdout)


def finish(
    running: Running,
    timeout: float,
    ask: Callable[[], None] | None = None,
    patience: float = PATIENCE,
) -> Finished:
    """Wait; after `timeout` seconds the command is killed. With `ask` it is asked first to end by
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


def dump(criu: str, root_inner: int, images_fd: int, ghost_limit: int) -> list[str]:
    return [
        criu, "dump", "--stream", "--unprivileged", "--no-default-config", "-L", str(LIBEXEC),
        "-t", str(root_inner), "-D", f"/proc/self/fd/{images_fd}", "-o", "dump.log", "-v2",
        "--leave-stopped", "--timeout", "60",
        "--tcp-established", "--skip-in-flight", "--network-lock", "skip",
        "--file-locks", "--link-remap", "--ghost-limit", str(ghost_limit),
        "--manage-cgroups=ignore",
    ]  # fmt: skip


def restore(criu: str, images_fd: int, inherit: Sequence[tuple[int, str]]) -> list[str]:
    """`inherit` are (descriptor, path as dumped): CRIU takes the descriptor in place of the file,
    without comparing its size, which is what a job output file needs."""
    words = [
        criu, "restore", "--stream", "--unprivileged", "--no-default-config", "-L", str(LIBEXEC),
        "-D", f"/proc/self/fd/{images_fd}", "-o", "restore.log", "-v2",
        "--tcp-established", "--network-lock", "skip",
        "--file-locks", "--link-remap", "--manage-cgroups=ignore", "--restore-detached",
    ]  # fmt: skip
    for fd, path in inherit:
        words += ["--inherit-fd", f"fd[{fd}]:{path.lstrip('/')}"]
    return words


_ERROR = re.compile(r"Error \([^)]*\): (.*)")


def complaints(log: Path, most: int = 3) -> str:
    """The first errors in a CRIU log, as one line for people; empty where there is none."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return ""
    found = [match[1].strip() for match in _ERROR.finditer(text)]
    return "; ".join(list(dict.fromkeys(found))[:most])
