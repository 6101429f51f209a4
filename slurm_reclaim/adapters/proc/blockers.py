"""Finds what CRIU can't dump, by looking at the processes before anything is frozen.

Every finding is a named Blocker with a hint. Nothing here touches the session.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator

from slurm_reclaim.adapters.proc import descriptor_blockers, sockets, thread_blockers
from slurm_reclaim.adapters.proc.tree import (
    PROC,
    Process,
    descriptors,
    kernel_text,
    namespace,
    outside,
    read,
)
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.words import amount

# A mapping in smaps: whether it is private, and the lines that follow.
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ...([ps]) (.*(?:\n[A-Z].*)*)", re.MULTILINE)
_IN_HUGE_PAGES = re.compile(r"^(?:Private|Shared)_Hugetlb:\s+(\d+) kB", re.MULTILINE)
# Seconds that a process may be in the kernel, and between two looks at it.
_PATIENCE, _LOOK = 5.0, 0.01
_NAMESPACES = ("pid", "mnt", "net", "ipc", "uts", "user", "cgroup")


def find(tree: list[Process], *, root: int, relay: int, uid: int) -> list[Blocker]:
    """Blockers of the session whose root process and relay have these PIDs (agent's view); but for
    its files (file_blockers.py)."""
    found: list[Blocker] = []
    living = [p for p in tree if p.state not in "ZX"]
    if not any(p.pid == root for p in living):
        return [Blocker("no-process", "the session has no living process", "nothing to save")]
    for process in outside(tree, root):
        found.append(
            Blocker(
                "outside-tree",
                f"{process} is not below the batch script",
                "it entered the session from outside; end it",
            )
        )
    filters = _filters(relay)
    pipes: set[str] = set()
    for process in living:
        of_it = [*_process(process, root, uid, filters)]
        of_it += descriptor_blockers.of_process(process, pipes)
        of_it += _mappings(process)
        if of_it and _ended(process):
            continue  # what is left of it looks like anything but the others
        found += of_it
    for process in _stuck(living):
        found.append(Blocker("in-kernel", f"{process} waits in the kernel (D)", "try again"))
    found += descriptor_blockers.many(pipes)
    found += thread_blockers.find(tree)
    found += sockets.outside_unix_peers(living)
    found += system_v(uid)
    return list(dict.fromkeys(found))


def _stuck(living: Iterable[Process]) -> list[Process]:
    """Those that stay in the kernel: who works on a file server is there again and again, for a
    moment, and the freeze waits that long, too."""
    left = [p for p in living if p.state == "D"]
    deadline = time.monotonic() + _PATIENCE
    while left and time.monotonic() < deadline:
        time.sleep(_LOOK)
        left = [p for p in left if _still_waits(p)]
    return left


def _still_waits(process: Process) -> bool:
    now = read(process.pid)
    return now is not None and now.start == process.start and now.state == "D"


def _ended(process: Process) -> bool:
    now = read(process.pid)
    return now is None or now.start != process.start or now.state in "ZX"


def _filters(pid: int) -> int:
    try:
        text = kernel_text(PROC / str(pid) / "status")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    match = re.search(r"^Seccomp_filters:\s*(\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0


def _process(process: Process, root: int, uid: int, filters: int) -> Iterator[Blocker]:
    status = process.status
    tracer = status.get("TracerPid", "0")
    if tracer != "0":
        yield Blocker("traced", f"{process} is traced by {tracer}", "detach the debugger")
    if set(process.uids) != {uid}:
        yield Blocker(
            "other-user",
            f"{process} runs as uid {process.uids[1]}",
            "a set-uid program is running; end it",
        )
    if int(status.get("CapPrm", "0"), 16):
        yield Blocker("capabilities", f"{process} has capabilities", "end it")
    own = [kind for kind in _NAMESPACES if namespace(process.pid, kind) != namespace(root, kind)]
    if own:
        yield Blocker(
            "own-namespace",
            f"{process} has its own {'/'.join(own)} namespace",
            "containers and browser sandboxes can't be hibernated; end it",
        )
    strict = status.get("Seccomp", "0").strip() == "1"
    if strict or int(status.get("Seccomp_filters", "0")) != filters:
        yield Blocker(
            "seccomp",
            f"{process} has a seccomp {'mode' if strict else 'filter'} of its own",
            "browser and container sandboxes can't be given back; end it",
        )
    if _closed(process):
        yield Blocker(
            "not-dumpable",
            f"{process} lets nobody look into it",
            "agents that keep keys (ssh-agent, gpg-agent) can't be saved; end it",
        )


def _closed(process: Process) -> bool:
    """Its files in /proc are root's then (PR_SET_DUMPABLE), and CRIU, as the owner, sees none."""
    try:
        return os.stat(PROC / str(process.pid) / "environ").st_uid != process.uids[1]
    except (FileNotFoundError, ProcessLookupError):
        return False


def _mappings(process: Process) -> Iterator[Blocker]:
    try:
        text = (PROC / str(process.pid) / "maps").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return
    if "anon_inode:[io_uring]" in text:
        yield from descriptor_blockers.anonymous(process, "[io_uring]")
    # Reading smaps walks all of its memory.
    if largest([process], "HugetlbPages"):
        yield from _huge_pages(process)


def _huge_pages(process: Process) -> Iterator[Blocker]:
    """Private ones are dumped and can't be read back: CRIU's restorer seeks in a stream for them
    (seen with 4.2.1). Shared ones come back."""
    try:
        text = (PROC / str(process.pid) / "smaps").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return
    size = sum(
        int(held)
        for rights, rest in _MAPPING.findall(text)
        if rights == "p"
        for held in _IN_HUGE_PAGES.findall(rest)
    )
    if size:
        what = f"{process} has {amount(size << 10)} of its own in huge pages (MAP_HUGETLB)"
        hint = "transparent huge pages, or shared ones, are no hindrance"
        yield Blocker("huge-pages", what, hint)


def watching(tree: Iterable[Process]) -> bool:
    """Whether a process has inotify watches (tail -f, editors, file browsers)."""
    return any(
        target == "anon_inode:inotify"
        for process in tree
        for _, target in descriptors(PROC / str(process.pid))
    )


def system_v(uid: int) -> Iterator[Blocker]:
    """System V objects belong to the node's IPC namespace and stay behind. /proc/sysvipc tells
    their owner only, so that another job of the same user counts, too: rather that than a loss."""
    for kind, column in (("sem", 4), ("msg", 7), ("shm", 7)):
        rows = kernel_text(PROC / "sysvipc" / kind).split("\n")[1:]
        if any(row.split()[column : column + 1] == [str(uid)] for row in rows):
            what = f"its owner has System V objects ({kind}) on this node"
            yield Blocker("sysv-ipc", what, "see `ipcs`; remove them with `ipcrm`")


def memory(tree: Iterable[Process]) -> int:
    """Bytes the dump may need: anonymous and shared memory of every process, an upper bound."""
    total = 0
    for process in tree:
        for key in ("RssAnon", "RssShmem", "VmSwap"):
            total += int(process.status.get(key, "0 kB").split()[0]) * 1024
    return total


def largest(tree: Iterable[Process], key: str) -> int:
    """Bytes of `key` in /proc/PID/status (RssAnon, HugetlbPages) of the process with most of it:
    what is needed at least, since processes share memory."""
    return max((int(p.status.get(key, "0 kB").split()[0]) * 1024 for p in tree), default=0)
