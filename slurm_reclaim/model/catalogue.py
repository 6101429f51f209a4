"""What the store holds, as an agent found it, and how people name a checkpoint of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from slurm_reclaim.errors import BadRequest
from slurm_reclaim.model.ids import SessionId, parse_job_ref, parse_session_id


@dataclass(frozen=True, slots=True)
class Pack:
    """Page contents in the store, shared by the checkpoints of one session; `size` bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """One committed checkpoint. `bytes` of its own files, without packs; `packs` it needs, by
    name; `created` Unix seconds; `problem`: why its manifest can't be read ("": it can), and then
    nothing else is known of it, its packs neither; `only`: the node that has, or may have, the only
    copy of it ("": the store has it)."""

    restarts: int
    created: float = 0.0
    bytes: int = 0
    packs: tuple[str, ...] = ()
    user: str = ""
    node: str = ""
    reason: str = ""
    problem: str = ""
    only: str = ""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """All that lies in the store of one session. `checkpoints` oldest first, with those that are
    still on their node only; `packs` that are there, named by a manifest or not; `leftovers`: what
    an interrupted hibernation or collection left behind, by name, with its bytes."""

    session: str
    checkpoints: tuple[StoredCheckpoint, ...] = ()
    packs: tuple[Pack, ...] = ()
    leftovers: tuple[str, ...] = ()
    leftover_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Each pack once, however many checkpoints share it."""
        own = sum(checkpoint.bytes for checkpoint in self.checkpoints)
        return own + sum(pack.size for pack in self.packs) + self.leftover_bytes

    @property
    def newest(self) -> int:
        """Restart count of the newest committed checkpoint; -1 where there is none."""
        return max((checkpoint.restarts for checkpoint in self.checkpoints), default=-1)

    @property
    def there(self) -> tuple[StoredCheckpoint, ...]:
        """Those that the store has."""
        return tuple(each for each in self.checkpoints if not each.only)

    @property
    def needed(self) -> frozenset[int]:
        """What a session that lives may be restored from: its newest checkpoint, and where that
        can't be read, or may be lost with its node, the newest that can, and the store has."""
        newest = max((c.restarts for c in self.there), default=-1)
        good = max((c.restarts for c in self.there if not c.problem), default=-1)
        return frozenset({self.newest, newest, good} - {-1})

    @property
    def stray(self) -> tuple[str, ...]:
        """Packs that no checkpoint needs, and that no dump under way can be writing: those are of a
        newer number. Nothing where a manifest can't be read."""
        if any(each.problem for each in self.checkpoints):
            return ()
        named = {name for each in self.checkpoints for name in each.packs}
        newest = max((each.restarts for each in self.there), default=-1)
        return tuple(
            pack.name
            for pack in self.packs
            if pack.name not in named and is_older(pack.name, newest)
        )

    def alone(self, restarts: int) -> int:
        """Bytes that only this checkpoint needs: what goes when it goes."""
        mine: set[str] = set()
        others: set[str] = set()
        own = 0
        for each in self.checkpoints:
            if each.restarts == restarts:
                own, mine = each.bytes, set(each.packs)
            else:
                others |= set(each.packs)
        return own + sum(pack.size for pack in self.packs if pack.name in mine - others)


def is_older(pack: str, restarts: int) -> bool:
    """Whether a pack, `<restart count>-<n>.pack`, was written for a checkpoint before this one."""
    number = pack.partition("-")[0]
    return number.isascii() and number.isdigit() and int(number) < restarts


@dataclass(frozen=True, slots=True)
class StoredPart:
    """One file of a checkpoint; `also`: other checkpoints of the session that need it."""

    path: str
    size: int
    also: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreTask:
    """What an order about the store is about. `ended`: so has the session, and all that is left of
    it may go with its last checkpoint; `after`: the page of the catalogue that follows this
    session."""

    session: str = ""
    restarts: tuple[int, ...] = ()
    ended: bool = False
    after: str = ""


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """`sessions`: a page of the catalogue, with `after` for the next ("": it was the last);
    `parts` of a checkpoint; `differs`: what is not as it was written, by name; `freed` bytes;
    `deleted` checkpoints; `away`: the store did not answer, which says nothing of what it holds."""

    sessions: tuple[StoredSession, ...] = ()
    after: str = ""
    parts: tuple[StoredPart, ...] = ()
    differs: tuple[str, ...] = ()
    freed: int = 0
    deleted: tuple[int, ...] = ()
    away: bool = False


@dataclass(frozen=True, slots=True)
class Pin:
    """A checkpoint that nothing deletes. `admin`: only operators may take it away; `at` Unix
    seconds."""

    session: str
    restarts: int
    admin: bool
    by: str
    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Announced:
    """The owner of a hibernated session was told when it ends: `since` is the session's at that
    time, so that it says nothing of a later hibernation; `deadline` and `at` (of the first notice
    that arrived) Unix seconds; `times` how often; `told` by which ways."""

    session: str
    since: float
    deadline: float
    at: float
    times: int = 1
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """A checkpoint as it is shown to people. `bytes` of its own files, `alone` what would go with
    it; `state` of its session; `keeps`: why it is kept, or what becomes of it; `expires` Unix
    seconds (0: not known, or never); `pins` by whom."""

    session: str
    restarts: int
    job: str
    user: str
    uid: int
    state: str
    created: float = 0.0
    bytes: int = 0
    alone: int = 0
    node: str = ""
    reason: str = ""
    keeps: str = ""
    expires: float = 0.0
    pins: tuple[Pin, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """`at` Unix seconds of the look into the store, by the agent of `node`; `total` bytes that it
    holds and `orphans` among them (bytes), 0 for those who may not see all."""

    at: float
    node: str
    checkpoints: tuple[Listed, ...] = ()
    total: int = 0
    orphans: int = 0


@dataclass(frozen=True, slots=True)
class Shown:
    """One checkpoint with its files."""

    checkpoint: Listed
    parts: tuple[StoredPart, ...] = ()


@dataclass(frozen=True, slots=True)
class Errand:
    """Work on the store that was asked for, by its number. `done`: it is over, and `error` says
    why it failed ("": it did not)."""

    number: str
    done: bool = False
    error: str = ""
    answer: StoreAnswer = field(default_factory=StoreAnswer)


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """As a person typed it. `session` is empty where only the job is named; `restarts` -1: the
    newest."""

    job_id: int
    session: str = ""
    restarts: int = -1


_NUMBER = re.compile(r"^\d{1,9}$")


def parse_checkpoint_ref(text: str) -> CheckpointRef:
    """`123`, `123/2`, `cluster/123.2001.1700000000` or `cluster/123.2001.1700000000/2`: a job or a
    session, and the restart count of the checkpoint. Raises BadRequest."""
    text = text.strip()
    head, _, last = text.rpartition("/")
    restarts = -1
    if head and _NUMBER.match(last):
        text, restarts = head, int(last)
    if "/" in text:
        id: SessionId = parse_session_id(text)
        return CheckpointRef(id.job_id, str(id), restarts)
    ref = parse_job_ref(text)
    if ref.array_task is not None:
        raise BadRequest(
            f"{text!r} names an array task",
            hint="name its session instead, as shown by: reclaim checkpoints list",
        )
    return CheckpointRef(ref.job_id, "", restarts)
