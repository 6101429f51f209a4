"""CRIU's command lines, run through reclaim-exec: in the session's namespaces, as its own uid,
with the few capabilities the operation needs and nothing else of ours."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import sh

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


def start(
    entry: Entry,
    command: Sequence[str],
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
) -> sh.RunningCommand:
    """Start a command in the background; `finish` waits for it. Its output is kept, or with
    `stdout` what it writes to standard error."""
    for fd in entry.keep:
        os.set_inheritable(fd, True)
    run = sh.Command(str(LIBEXEC / "reclaim-exec"))
    return run(
        *entry.argv(),
        "--",
        *command,
        _env=ENVIRONMENT,
        _pass_fds=set(entry.keep),
        _bg=True,
        _bg_exc=False,
        _tty_out=False,
        _err_to_out=stdout is None,
        _in=stdin,
        _out=stdout,
        _ok_code=list(range(-64, 256)),
    )


def finish(
    running: sh.RunningCommand,
    timeout: float,
    ask: Callable[[], None] | None = None,
    patience: float = PATIENCE,
) -> Finished:
    """Wait; after `timeout` seconds the command is killed. With `ask` it is asked first to end by
    itself, and killed `patience` seconds later. By timers of our own, since those of sh make it
    look for the end every 0.1 s only."""
    late, over = threading.Event(), threading.Event()

    def end() -> None:
        if over.wait(timeout):
            return
        late.set()
        if ask is not None:
            ask()
            if over.wait(patience):
                return
        running.kill()

    threading.Thread(target=end, daemon=True).start()
    try:
        running.wait()
    finally:
        over.set()
    said = running.stdout or running.stderr or b""
    status = int(running.exit_code or 0)
    return Finished(status, said.decode(errors="replace"), status != 0 and late.is_set())


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
