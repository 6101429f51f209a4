"""Threads that differ from their process in what CRIU saves of the process only."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable, Iterator

from slurm_reclaim.adapters.proc.tree import PROC, Process, kernel_text
from slurm_reclaim.model.blocker import Blocker

_KCMP = {"x86_64": 312, "aarch64": 272, "ppc64le": 354, "s390x": 343}
_FILES, _FS = 2, 3  # KCMP_FILES, KCMP_FS of kcmp(2)
_OWN = re.compile(r"^(TracerPid|Seccomp_filters):\s*(\d+)", re.MULTILINE)


def find(tree: Iterable[Process]) -> Iterator[Blocker]:
    libc = ctypes.CDLL(None, use_errno=True)
    number = _KCMP.get(os.uname().machine)
    for process in tree:
        others = _others(process.pid)
        if process.state in "ZX":
            # All of its threads are dead, too, unless the first one left them behind.
            if others:
                yield Blocker(
                    "thread-left",
                    f"{process} lives on in other threads, its first one has ended",
                    "CRIU takes it for a dead process; end it",
                )
            continue
        for tid in others:
            yield from _thread(process, tid)
            if number is not None:
                yield from _private(process, tid, number, libc)


def _others(pid: int) -> list[int]:
    """Threads but for the first one; those of one that has ended are its living ones."""
    try:
        return [int(name) for name in os.listdir(PROC / str(pid) / "task") if int(name) != pid]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _thread(process: Process, tid: int) -> Iterator[Blocker]:
    try:
        status = kernel_text(PROC / str(process.pid) / "task" / str(tid) / "status")
    except (FileNotFoundError, ProcessLookupError):
        return
    own = dict(_OWN.findall(status))
    if (tracer := own.get("TracerPid", "0")) != "0":
        what = f"a thread of {process} is traced by {tracer}"
        yield Blocker("traced", what, "detach the debugger")
    if own.get("Seccomp_filters", "0") != process.status.get("Seccomp_filters", "0").strip():
        yield Blocker(
            "seccomp",
            f"a thread of {process} has a seccomp filter of its own",
            "browser and container sandboxes can't be given back; end it",
        )


def _private(process: Process, tid: int, number: int, libc: ctypes.CDLL) -> Iterator[Blocker]:
    """kcmp(2) answers 0 where both have the same, 1 and 2 where not, -1 where one has ended."""
    for kind, name in ((_FILES, "open files"), (_FS, "working directory")):
        if libc.syscall(number, process.pid, tid, kind, 0, 0) > 0:
            yield Blocker(
                "thread-private",
                f"a thread of {process} has {name} of its own (unshare)",
                "it would come back with those of its process; end it",
            )
