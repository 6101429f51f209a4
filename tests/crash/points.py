"""Which faults there are: each program's n-th call of a kind, while a session is hibernated or
restored."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.crash.control import Action, Kind

EFFECTS = Kind.FILE | Kind.REMOTE | Kind.LOCAL | Kind.EXEC | Kind.PIPE
VERBS = ("hibernate", "restore")
PROGRAMS = ("reclaim-agent", "criu", "reclaimd", "reclaim")
ON_CTL = ("reclaimd", "reclaim", "s3")


@dataclass(frozen=True)
class Fault:
    """What happens at a call of `kinds`, `length` calls in a row (0: until it is mended)."""

    name: str
    action: Action
    kinds: Kind
    length: int = 1
    error: int = 0

    @property
    def lasts(self) -> bool:
        return self.length == 0


KILL = Fault("kill -9", Action.KILL, EFFECTS)
# Between two of these a session's process may be in the middle of a call that CRIU makes it do: if
# CRIU dies just then, so does the process. Not in the matrix but by --ptrace; see README.md.
KILL_PTRACE = Fault("kill -9 at ptrace", Action.KILL, Kind.TRACE)
KILL_REMOTE = Fault("kill -9 at a remote call", Action.KILL, Kind.REMOTE | Kind.HEAR)
STOP = Fault("SIGSTOP", Action.STOP, EFFECTS)
ENOSPC = Fault("ENOSPC from there on", Action.FAIL, Kind.FILE, 0, errno.ENOSPC)
EIO = Fault("EIO once", Action.FAIL, Kind.FILE, 1, errno.EIO)
LOST = Fault("done, but EIO", Action.LOSE, Kind.FILE, 1, errno.EIO)
UNSENT = Fault("request not sent", Action.FAIL, Kind.REMOTE, 1, errno.ECONNRESET)
UNHEARD = Fault("reply lost", Action.FAIL, Kind.HEAR, 1, errno.ECONNRESET)
PARTITION = Fault("partition", Action.FAIL, Kind.REMOTE | Kind.HEAR, 0, errno.ETIMEDOUT)
BROKEN = Fault("broken pipe", Action.FAIL, Kind.PIPE, 1, errno.EPIPE)
HALVED = 1
# Of an object store, by its answers: 500 or 503, all of it done and no answer, half of either.
BAD = Fault("500 once", Action.FAIL, Kind.REMOTE, 1, 500)
BUSY = Fault("503 from there on", Action.FAIL, Kind.REMOTE, 0, 503)
HALF = Fault("half of what is sent", Action.FAIL, Kind.REMOTE, 1, HALVED)
UNTOLD = Fault("done, but not answered", Action.LOSE, Kind.REMOTE)
HALF_TOLD = Fault("half of the answer", Action.LOSE, Kind.REMOTE, 1, HALVED)
NO_FORK = Fault("exec fails", Action.FAIL, Kind.EXEC, 1, errno.ENOMEM)

# Every how many calls there is a point.
DAEMON = {KILL: 1, EIO: 1, ENOSPC: 2, LOST: 3, UNSENT: 1, UNHEARD: 1, PARTITION: 3, STOP: 12,
          NO_FORK: 1, BROKEN: 3}  # fmt: skip
OF_CRIU = {KILL: 2, ENOSPC: 3, EIO: 8, STOP: 30, BROKEN: 6}
OF_COMMAND = {KILL: 1, UNSENT: 1, UNHEARD: 1}
# Where sessions are stored in an object store: what an agent says to others and hears from them.
OF_REMOTE = {KILL_REMOTE: 1, UNSENT: 1, UNHEARD: 1, PARTITION: 3, STOP: 12}
OF_STORE = {BAD: 1, BUSY: 2, HALF: 1, UNTOLD: 1, HALF_TOLD: 1, STOP: 2}
FAULTS = {"criu": OF_CRIU, "reclaim": OF_COMMAND, "s3": OF_STORE}


@dataclass(frozen=True)
class Point:
    program: str
    verb: str
    fault: Fault
    number: int
    event: str = ""
    """What happens to the world while the program is stopped there (world.py)."""

    def __str__(self) -> str:
        what = self.event or self.fault.name
        return f"{self.program} {self.verb}: {what} at call {self.number}"


Counts = Mapping[tuple[str, str], list[Kind]]
"""(program, verb) -> the kinds of the calls that one made."""


def every(counts: Counts, offset: int = 0, ptrace: bool = False) -> Iterator[Point]:
    """All points; `offset` moves those that are not at each call. `ptrace`: those of CRIU's calls
    of ptrace(2) instead. Where an object store answers, those of the talk with it."""
    remote = any(program == "s3" for program, _ in counts)
    for (program, verb), kinds in counts.items():
        faults = FAULTS.get(program, DAEMON)
        if remote and program != "s3":
            faults = OF_REMOTE if program == "reclaim-agent" else {}
        if ptrace:
            faults = {KILL_PTRACE: 1} if program == "criu" else {}
        for fault, stride in faults.items():
            calls = sum(1 for kind in kinds if kind & fault.kinds)
            for number in range(1 + offset % stride, calls + 1, stride):
                yield Point(program, verb, fault, number)


def around(
    counts: Counts, events: Iterable[str], each: int, program: str = "reclaim-agent"
) -> Iterator[Point]:
    """`each` points of every event: while the program is held at a call, spread over all it
    makes."""
    for verb in sorted({verb for of, verb in counts if of == program}):
        calls = sum(1 for kind in counts[program, verb] if kind & EFFECTS)
        for event in events:
            for part in range(each):
                number = max(1, round(calls * (part + 0.5) / each))
                yield Point(program, verb, STOP, number, event)


def beside(counts: Counts, events: Mapping[str, Iterable[str]], each: int) -> Iterator[Point]:
    """The same of several programs: by each, its events."""
    for program, some in events.items():
        yield from around(counts, some, each, program)


def sample(points: list[Point], seed: int) -> list[Point]:
    """All of them in an order in which the first ones are of every program, verb and fault."""
    chance = random.Random(seed)
    groups: dict[tuple[str, str, str], list[Point]] = {}
    for point in points:
        key = (point.program, point.verb, point.event or point.fault.name)
        groups.setdefault(key, []).append(point)
    for group in groups.values():
        chance.shuffle(group)
    mixed, queues = [], list(groups.values())
    chance.shuffle(queues)
    while queues:
        mixed += [queue.pop() for queue in queues]
        queues = [queue for queue in queues if queue]
    return mixed
