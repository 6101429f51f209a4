"""What the controller and the agents say to each other (JSON over HTTP; see docs/protocol.md).

Every order carries the incarnation (restart count) it was meant for; an agent whose living
incarnation differs refuses it as stale (S3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.catalogue import StoreAnswer, StoreTask
from slurm_reclaim.model.checkpoint import GpuCard, Needs
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.sample import GpuHeld, Sample
from slurm_reclaim.model.session import Progress
from slurm_reclaim.model.upload import Upload


class Verb(str, Enum):
    """`hibernate`: preflight, dump, commit, kill, keep the allocation until the requeue.
    `preflight`: only name the blockers. `notify`: write `text` to the session's terminals.
    `cancel`: give up a hibernation that is not committed yet. `restore-in-place`: the requeue was
    refused or is not wanted, restore the committed checkpoint in the same allocation. `let-go`: the
    session's wait is over (the job is to end or to be requeued by Slurm): the relay exits.
    `catalogue`, `parts`, `verify`, `expire`: work on the store, see StoreTask; any agent that has
    the store can do it."""

    HIBERNATE = "hibernate"
    PREFLIGHT = "preflight"
    NOTIFY = "notify"
    CANCEL = "cancel"
    RESTORE_IN_PLACE = "restore-in-place"
    LET_GO = "let-go"
    CATALOGUE = "catalogue"
    PARTS = "parts"
    VERIFY = "verify"
    EXPIRE = "expire"


STORE_VERBS = frozenset({Verb.CATALOGUE, Verb.PARTS, Verb.VERIFY, Verb.EXPIRE})


@dataclass(frozen=True, slots=True)
class Order:
    """`since` (Unix seconds of the node's clock): where `cancel_on_activity`, activity after it
    cancels (S5), and so does a signal that is unknown then and not in `optional`. `text`: what
    `notify` writes to the terminals. `store`: of an order about the store, which names no session
    otherwise."""

    id: str
    verb: Verb
    session: str
    job_id: int
    restarts: int
    reason: str
    cancel_on_activity: bool = False
    since: float = 0.0
    optional: tuple[str, ...] = ()
    text: str = ""
    store: StoreTask | None = None


class Outcome(str, Enum):
    DONE = "done"
    REFUSED = "refused"  # blockers; nothing was touched
    CANCELLED = "cancelled"  # activity re-seen; the tree runs on
    FAILED = "failed"  # tree runs on (hibernate) or image kept (restore)


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to an order, repeated in every report until the controller acknowledges it.
    `needs`: what a node must have to restore the checkpoint just committed, of `bytes`, of which
    the store had all but `stored`; `count`: how many terminals took the text of a notice;
    `freed_gpu`: bytes of GPU memory that the session held and gave back."""

    order: str
    session: str
    restarts: int
    verb: Verb
    outcome: Outcome
    reason: str
    blockers: tuple[Blocker, ...] = ()
    bytes: int = 0
    stored: int = 0
    seconds: float = 0.0
    at: float = 0.0
    needs: Needs | None = None
    count: int = 0
    store: StoreAnswer | None = None
    freed_gpu: int = 0


class Living(str, Enum):
    """What the agent sees of a session: its tree runs; it is being worked on; it was committed
    and killed and its relay keeps the allocation; it waits to be restored; it was restored."""

    RUNNING = "running"
    DUMPING = "dumping"
    COMMITTED = "committed"
    WAITING = "waiting"
    RESTORING = "restoring"
    RESTORE_FAILED = "restore-failed"


@dataclass(frozen=True, slots=True)
class SessionReport:
    """One session of the node. `session` is empty until the controller has named it (a fresh
    start); `started` Unix seconds of this incarnation on this node; `samples` what was measured
    since the last report that was answered, in order, without a hole between them; `blockers` what
    stood in the way of a hibernation when it was `looked` at last (Unix seconds, 0: not yet)."""

    job_id: int
    uid: int
    restarts: int
    living: Living
    session: str = ""
    started: float = 0.0
    processes: int = 0
    memory: int = 0
    last_activity: float = 0.0
    reason: str = ""
    restored: bool = False
    checkpoint: int = -1
    checkpoint_bytes: int = 0
    needs: Needs | None = None
    progress: Progress = field(default_factory=Progress)
    blockers: tuple[Blocker, ...] = ()
    looked: float = 0.0
    samples: tuple[Sample, ...] = ()
    gpus: tuple[GpuHeld, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node has, for fit and for `reclaim check`; the words are those of Needs. `mounts` are
    all but the kernel's own, None where they are too many to tell; `hugepages` bytes in all;
    `store_keys` ids of the store's keys, the one that seals first; `store_orders`: its
    agent knows the orders about the store. `gpus` in NVML's order, `gpu_driver` its version, both
    empty where the node has none; `gpu_problem`: why no session with CUDA state can be restored
    there, "" where it can."""

    arch: str = ""
    kernel: str = ""
    cpu_flags: str = ""
    xsave: int = 0
    glibc: str = ""
    glibc_build: str = ""
    mounts: tuple[str, ...] | None = None
    hugepages: int = 0
    criu: str = ""
    criu_ok: bool = False
    criu_problem: str = ""
    plugin_seen: bool = False
    plugin_problem: str = ""
    io_uring_disabled: int = -1
    store_ok: bool = False
    store_problem: str = ""
    store_free: int = 0
    store_keys: tuple[str, ...] = ()
    version: str = ""
    config_digest: str = ""
    memory_total: int = 0
    store_orders: bool = False
    gpus: tuple[GpuCard, ...] = ()
    gpu_driver: str = ""
    gpu_problem: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What an agent tells every interval, and at once when something happened. `uploads`:
    checkpoints that wait for their upload, and those of which the controller has not said that it
    knows that they are uploaded; None where the agent can't tell."""

    node: str
    boot_id: str
    at: float
    facts: NodeFacts
    sessions: tuple[SessionReport, ...] = ()
    results: tuple[Result, ...] = ()
    events: tuple[Event, ...] = ()
    uploads: tuple[Upload, ...] | None = ()


@dataclass(frozen=True, slots=True)
class ReportReply:
    """`acknowledged`: orders whose results are journaled; `names`: job id -> session id for
    sessions the agent did not know the name of; `forget`: sessions that ended; `uploads`: those
    that need not be told again."""

    acknowledged: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    events_taken: int = 0
    uploads: tuple[Upload, ...] = ()


@dataclass(frozen=True, slots=True)
class StartQuestion:
    """Asked when a job starts on a node and the store holds a checkpoint under its job id and
    uid: what shall become of it? `boot_id`: the kernel's, as in a report."""

    node: str
    job_id: int
    uid: int
    facts: NodeFacts
    checkpoints: tuple[str, ...] = ()
    boot_id: str = ""


class StartMode(str, Enum):
    FRESH = "fresh"  # the checkpoints belong to an earlier job of that number
    RESTORE = "restore"
    WAIT = "wait"  # not known yet; ask again


@dataclass(frozen=True, slots=True)
class StartAnswer:
    """`accept`: files that may have changed since the checkpoint, by its owner's word."""

    mode: StartMode
    reason: str
    session: str = ""
    restarts: int = 0
    checkpoint: int = -1
    accept: tuple[str, ...] = ()
