"""CRIU's command lines, run by `sh`, through reclaim-exec (program.py)."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import BinaryIO

import sh

from slurm_reclaim.adapters.criu import program
from slurm_reclaim.adapters.criu.program import ENVIRONMENT, LIBEXEC, Begun, Entry, Running

# proof: dump needs SYS_PTRACE to seize, NET_ADMIN to repair TCP, SYS_ADMIN to suspend a seccomp
# filter; restore needs SETPCAP where the bounding set differs
DUMP_CAPS = ("checkpoint_restore", "sys_ptrace", "net_admin")
SECCOMP_CAPS = ("sys_admin",)
# open_by_handle_at(2), by which CRIU finds the path of an inotify watch
INOTIFY_CAPS = ("dac_read_search",)
RESTORE_CAPS = ("checkpoint_restore", "setpcap", "net_admin")


class _Command:
    """program.Begun of what sh runs."""

    def __init__(self, command: sh.RunningCommand) -> None:
        self._command = command
        self.pid = int(command.pid)

    def wait(self) -> int:
        self._command.wait()
        return int(self._command.exit_code or 0)

    def kill(self) -> None:
        self._command.kill()


def by_sh(
    words: Sequence[str],
    keep: Collection[int],
    stdin: BinaryIO,
    stdout: BinaryIO | int,
    stderr: int,
) -> Begun:
    """program.Begin."""
    for fd in keep:
        os.set_inheritable(fd, True)
    return _Command(
        sh.Command(words[0])(
            *words[1:],
            _env=ENVIRONMENT,
            _pass_fds=set(keep),
            _bg=True,
            _bg_exc=False,
            _tty_out=False,
            _in=stdin,
            _out=stdout,
            _err=stderr,
            _ok_code=list(range(-64, 256)),
        )
    )


def start(entry: Entry, words: Sequence[str]) -> Running:
    """CRIU, there where `entry` leads to."""
    return program.start(entry, words, begin=by_sh)


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
