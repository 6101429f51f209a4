"""Jupyter servers and kernels among the processes of a session, found by their command lines."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.owner import read_bounded
from slurm_reclaim.adapters.proc.tree import PROC, Process

# A process that execs another program keeps its PID, so what is known is looked at again: every
# minute those that began first, the batch script among them, and a share of the others.
RESCAN = 60.0  # seconds
FIRST = 8
SHARES = 5
# Where nothing has run since: a look may have failed for reasons of its own.
STILL = 600.0  # seconds
MOST_WORDS = 8192  # bytes of a command line
MOST_PROCESSES = 20_000
MOST_DEPTH = 16  # from a kernel up to its server: wrappers, launchers

_PYTHON = re.compile(r"^(python|pypy)[0-9.]*t?$")
_SCRIPTS = {
    "jupyter-server", "jupyter-lab", "jupyter-notebook", "jupyter-labhub", "jupyter-nbclassic",
    "jupyterhub-singleuser", "batchspawner-singleuser",
}  # fmt: skip
_MODULES = {
    "jupyter_server", "jupyterlab", "notebook", "nbclassic", "jupyterhub.singleuser",
    "jupyterlab.labhubapp",
}  # fmt: skip
_ERRANDS = {
    "list", "stop", "password", "extension", "build", "clean", "path", "paths", "workspace",
    "workspaces", "license", "licenses", "labextension",
}  # fmt: skip
_KERNEL_MODULES = {"ipykernel_launcher", "ipykernel", "xeus_python"}
_CONNECTION = re.compile(r"^kernel-[\w-]+\.json$")


@dataclass(frozen=True, slots=True)
class Server:
    """`process` as the session's own /proc shows it; `sure` where its command line says that it is
    a Jupyter server, not only that it has started kernels."""

    process: Process
    words: tuple[str, ...]
    sure: bool

    @property
    def key(self) -> tuple[int, int]:
        return self.process.pid, self.process.start


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's process; `parents` those above it, nearest first."""

    pid: int
    name: str
    parents: tuple[int, ...]

    def __str__(self) -> str:
        return f"{printable(self.name)} ({self.pid})"


@dataclass(frozen=True, slots=True)
class Found:
    servers: tuple[Server, ...] = ()
    kernels: tuple[Kernel, ...] = ()


def printable(text: str, most: int = 40) -> str:
    """What a user chose as a name, as one line that can be shown to people."""
    return "".join(c if c.isprintable() else "?" for c in text)[:most]


def program(words: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
    """The script and the module that a command line runs, one of them empty, and its arguments.
    Wrappers (`srun jupyter-lab`) run nothing themselves and are processes of their own."""
    if not words:
        return "", "", ()
    name = os.path.basename(words[0])
    if not _PYTHON.match(name):
        return name, "", tuple(words[1:])
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        if word == "-m" and rest:
            return "", rest[0], tuple(rest[1:])
        if word in ("-X", "-W") and rest:
            rest.pop(0)
        elif word == "-c":
            return "", "", tuple(rest)
        elif not word.startswith("-"):
            return os.path.basename(word), "", tuple(rest)
    return "", "", ()


def is_server(words: Sequence[str]) -> bool:
    script, module, rest = program(words)
    if script not in _SCRIPTS and module not in _MODULES:
        return False
    return not (rest and rest[0] in _ERRANDS) and "--version" not in rest


def is_kernel(words: Sequence[str]) -> bool:
    script, module, rest = program(words)
    if script.startswith("jupyter"):
        return False  # a client of a kernel: jupyter-console --existing kernel-1.json
    if module in _KERNEL_MODULES:
        return True
    return any(
        _CONNECTION.match(os.path.basename(word.rpartition("=")[2])) or "IRkernel::main" in word
        for word in rest
    )


@dataclass(slots=True)
class Finder:
    """Keeps what it knows of a session's processes, so that a look costs one listing of its /proc
    while nothing comes or goes, and none while nothing of it has run. `init`: the agent's PID of
    the session's reclaim-init; `clock` gives the CPU seconds of all that its processes and their
    like ever used, None where nobody counts them."""

    init: int
    clock: Callable[[], float | None] = lambda: None
    proc: Path = field(init=False)
    _kinds: dict[int, tuple[str, ...] | None] = field(default_factory=dict)
    _looked: float = float("-inf")
    _found: Found = field(default_factory=Found)
    _listed: list[str] | None = None  # at the last look that has ended
    _ran: float | None = None  # by the clock, and every process was looked at since
    _seen: float | None = None  # by the clock, right before the last scan
    _steady: int = 0  # scans since the clock was at that
    _turn: int = 0
    # new at the last look: perhaps a shell's child that had yet to start its program
    _recent: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        # Root's own mount of the session's PID namespace: no user can put another in its place.
        self.proc = PROC / str(self.init) / "root" / "proc"

    def unchanged(self, now: float) -> Found | None:
        """What the last look found, where that still holds: the same processes are there. None
        where a look is due."""
        ran = self.clock()
        # Who starts, becomes another program or ends has run.
        if ran is not None and ran == self._ran and now - self._looked < STILL:
            return self._found
        try:
            listed = os.listdir(self.proc)
        except OSError:
            return None
        same = listed == self._listed and not self._recent
        return self._found if same and now - self._looked < RESCAN else None

    def look(self, now: float) -> Found:
        """`now`: monotonic seconds. OSError where the session is gone."""
        ran = self.clock()
        listed, self._listed = os.listdir(self.proc), None
        numbers = (int(name) for name in listed if name.isdigit())
        pids = set(itertools.islice(numbers, MOST_PROCESSES))
        pids.discard(1)  # reclaim-init
        due = now - self._looked >= RESCAN
        if not due and not self._recent and pids == self._kinds.keys():
            self._listed = listed
            return self._found
        for pid in self._kinds.keys() - pids:
            del self._kinds[pid]
        new = pids - self._kinds.keys()
        reading = new | self._recent & pids | (self._share(pids) if due else set())
        for pid in sorted(reading):
            words = self._words(pid)
            self._kinds[pid] = words if is_server(words) or is_kernel(words) else None
        self._recent = new
        self._found = self._arranged({p: w for p, w in self._kinds.items() if w is not None})
        self._listed = listed
        if due:
            self._looked = now
            self._steady = self._steady + 1 if ran == self._seen else 1
            self._seen = ran
            if reading == pids or self._steady >= SHARES:
                self._ran = ran
        return self._found

    def _share(self, pids: set[int]) -> set[int]:
        self._turn = (self._turn + 1) % SHARES
        return {*sorted(pids)[:FIRST], *(p for p in pids if p % SHARES == self._turn)}

    def _words(self, pid: int) -> tuple[str, ...]:
        try:
            fd = os.open(f"{self.proc}/{pid}/cmdline", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ()
        try:
            raw = read_bounded(fd, MOST_WORDS)
        except OSError:
            return ()
        finally:
            os.close(fd)
        return tuple(raw.decode("utf-8", "backslashreplace").split("\0")[:-1])

    def _arranged(self, known: dict[int, tuple[str, ...]]) -> Found:
        processes = {pid: tree.read(pid, self.proc) for pid in known}
        servers: dict[int, Server] = {}
        kernels = []
        for pid, process in sorted(processes.items()):
            if process is None or process.state in "ZX" or known[pid] == known.get(process.parent):
                continue  # a copy of its parent is a worker that forked off, no server or kernel
            if is_server(known[pid]):
                servers[pid] = Server(process, known[pid], sure=True)
            else:
                kernels.append(Kernel(pid, process.name, self._parents(process)))
        for kernel in kernels:
            if kernel.parents and not servers.keys() & set(kernel.parents):
                parent, words = kernel.parents[0], self._words(kernel.parents[0])
                process = tree.read(parent, self.proc)
                if process is not None and words and _PYTHON.match(os.path.basename(words[0])):
                    servers[parent] = Server(process, words, sure=False)
        launchers = {kernel.parents[0] for kernel in kernels if kernel.parents}
        return Found(tuple(servers.values()), tuple(k for k in kernels if k.pid not in launchers))

    def _parents(self, process: Process) -> tuple[int, ...]:
        chain: list[int] = []
        at: Process | None = process
        while at is not None and at.parent > 1 and len(chain) < MOST_DEPTH:
            chain.append(at.parent)
            at = tree.read(at.parent, self.proc)
        return tuple(chain)
