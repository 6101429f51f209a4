"""Jupyter servers and kernels among the processes of a session, found by their command lines."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.census import Census
from slurm_reclaim.adapters.proc.cgroup import contents
from slurm_reclaim.adapters.proc.owner import read_bounded
from slurm_reclaim.adapters.proc.tree import PROC, Process

# A process that execs another program keeps its PID, so those that may have done so are looked at
# again: seconds between two such looks.
RESCAN = 60.0
# Seconds after which all are: a look may have failed for reasons of its own.
ALL = 1800.0
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
    """A kernel's process; `start` clock ticks since boot; `parents` those above it, nearest
    first."""

    pid: int
    start: int
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


class Finder:
    """Keeps what it knows of a session's processes, so that a look costs no more than what came,
    went or may have become another program since. `init`: the agent's PID of the session's
    reclaim-init; without a `census` each look is one at all of them."""

    def __init__(self, init: int, census: Census | None = None) -> None:
        self._census = census
        # Root's own mount of the session's PID namespace: no user can put another in its place.
        self.proc = PROC / str(init) / "root" / "proc"
        self._kinds: dict[int, tuple[str, ...] | None] = {}
        self._found = Found()
        # of the last look that has ended: the census's `changes` then, and when all were looked at
        self._changes = -1
        self._looked = -ALL
        # monotonic seconds: when the next are due. Not those of all sessions at once.
        self._next = -RESCAN
        self._share = (init * 0.618034) % 1.0
        self._stirred: set[int] = set()  # taken from the census, and not looked at yet

    def unchanged(self, now: float) -> Found | None:
        """What the last look found, where that still holds. None where a look is due."""
        census = self._census
        if census is None or census.changes != self._changes or now - self._looked >= ALL:
            return None
        if (census.stirred or self._stirred) and now >= self._next:
            return None
        return self._found

    def look(self, now: float) -> Found:
        """`now`: monotonic seconds. OSError where the session is gone."""
        every, changes = now - self._looked >= ALL, self._changes
        if self._census is None:
            every = True
        else:
            changes = self._census.changes
            with suppress(KeyError):
                while True:
                    self._stirred.add(self._census.stirred.pop())
        pids = set(self._kinds)
        if every or changes != self._changes:
            numbers = (int(name) for name in os.listdir(self.proc) if name.isdigit())
            pids = set(itertools.islice(numbers, MOST_PROCESSES))
            pids.discard(1)  # reclaim-init
        for pid in self._kinds.keys() - pids:
            del self._kinds[pid]
        new = pids - self._kinds.keys()
        reading = pids if every else new | pids & {_inner(pid) for pid in self._stirred}
        for pid in sorted(reading):
            words = self._words(pid)
            self._kinds[pid] = words if is_server(words) or is_kernel(words) else None
        self._found = self._arranged({p: w for p, w in self._kinds.items() if w is not None})
        first = self._changes < 0
        self._changes = changes
        self._stirred.clear()
        # Who is new has perhaps yet to start its program, as a shell's child.
        self._next = now if new else now + RESCAN - (now + self._share * RESCAN) % RESCAN
        if every:
            self._looked = now - ALL * (self._share if first else 0.0)
        return self._found

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
                parents = self._parents(process)
                kernels.append(Kernel(pid, process.start, process.name, parents))
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


def _inner(pid: int) -> int:
    """The number of one of the agent's processes in its own PID namespace; 0 where it is gone."""
    try:
        text = contents(f"{PROC}/{pid}/status")
        return int(text.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()[-1])
    except (OSError, ValueError, IndexError):
        return 0
