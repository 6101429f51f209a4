"""What the stages need from the world. Adapters fulfil these.

Every method may raise `Unavailable` (the world did not answer) and says so only where more can
happen. Times are Unix seconds, sizes bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.catalogue import Announced, Pin
from slurm_reclaim.model.checkpoint import Contents, Credentials, Manifest
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.evidence import Evidence
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.job import Job, JobDetail, Node
from slurm_reclaim.model.lifecycle import Fact
from slurm_reclaim.model.notice import Delivery, Notice
from slurm_reclaim.model.sample import GpuHeld, Reading
from slurm_reclaim.model.session import Session


class Clock(Protocol):
    def now(self) -> float:
        """Unix seconds."""
        ...


class Scheduler(Protocol):
    """Slurm. `SchedulerUnavailable` where it did not answer, `RequeueFailed` where it said no. What
    changes a job takes its name, `123` or `123_4`: to Slurm an array's last task is the array."""

    async def jobs(self) -> Sequence[Job]:
        """Every job of the cluster that slurmctld still knows: one query."""
        ...

    async def detail(self, job_id: int) -> JobDetail | None:
        """None: Slurm positively does not know this job."""
        ...

    async def nodes(self) -> Sequence[Node]: ...

    async def annotate(self, job: str, *, comment: str, admin_comment: str) -> None: ...

    async def requeue_held(self, job: str, *, special_exit: bool) -> None: ...

    async def allow_requeue(self, job: str) -> None:
        """What its owner, or --no-requeue, has switched off: nobody can requeue it before."""
        ...

    async def requeue(self, job: str) -> None:
        """As Slurm itself does where it loses a node: the job is to start again, unheld."""
        ...

    async def prepare_held(
        self, job: str, *, time_limit: int, excluded_nodes: str, start_in: int, comment: str
    ) -> None:
        """Change a pending job: minutes are rounded up from `time_limit` seconds (0: leave it),
        `excluded_nodes` "" excludes none, `comment` "" is left; it may start in `start_in` seconds
        (-1: when Slurm says)."""
        ...

    async def release(self, job: str) -> None: ...

    async def hold(self, job: str) -> None:
        """Hold a waiting job such that its owner can't release it."""
        ...

    async def cancel(self, job: str) -> None: ...

    async def operator(self, user: str) -> bool:
        """Whether Slurm's accounting gives this user the level Operator or Administrator."""
        ...


class NodeNames(Protocol):
    """Lists of node names as Slurm writes them: `n[1-3],gpu7`."""

    def fold(self, names: Iterable[str]) -> str: ...

    def expand(self, text: str) -> tuple[str, ...]: ...


class Hosts(Protocol):
    """Names of hosts and the addresses behind them."""

    async def addresses(self, names: Sequence[str], *, again: bool = False) -> frozenset[str]:
        """Every address that any of these names, or addresses, stands for; a name that is unknown
        has none. Answers are kept for some minutes, with `again` for some seconds only."""
        ...

    async def ours(self, address: str) -> bool:
        """Whether it is an address of this very host."""
        ...


class Journal(Protocol):
    """Sessions, events and intents, durable before the call returns (S7)."""

    def sessions(self) -> Sequence[Session]:
        """All that live."""
        ...

    def ended(self, *, uid: int | None = None, limit: int = 200) -> Sequence[Session]:
        """The last `limit` that ended, of one owner or of all; the newest last. For any thread."""
        ...

    def of_array(self, array_job_id: int, task: int, uid: int | None = None) -> Sequence[Session]:
        """Every session, ended ones too, that ever had this name. For any thread."""
        ...

    def session(self, id: SessionId) -> Session | None: ...

    def of_job(self, job_id: int) -> Sequence[Session]:
        """Every session, ended ones too, that ever had this job id; the newest last."""
        ...

    def open_session(self, session: Session, event: Event) -> None: ...

    def apply(self, session: Session, fact: Fact, event: Event) -> None:
        """Store the session as it is after `fact`, and the event, in one transaction."""
        ...

    def update(self, session: Session) -> None:
        """Store details that are no transition (progress is not journaled)."""
        ...

    def note(self, event: Event) -> None: ...

    def events(
        self, *, job_id: int = 0, uid: int | None = None, after: int = 0, limit: int = 200
    ) -> Sequence[Event]:
        """In order: the first `limit` after the number `after`, or with `after` 0 the last."""
        ...

    def intend(self, session: SessionId, what: str, details: str) -> int:
        """Record an effect about to be tried; its number."""
        ...

    def settle(self, intent: int, outcome: str) -> None: ...

    def remember(self, name: str, value: str) -> None:
        """A word of the controller's own that outlives it; "" forgets it."""
        ...

    def recall(self, name: str) -> str: ...

    def keep_evidence(
        self, changed: Mapping[SessionId, Evidence], gone: Collection[SessionId]
    ) -> None:
        """Store what sessions are judged by in place of what is there of them, and drop that of
        those which are `gone`, all in one transaction. For any thread."""
        ...

    def evidence(self) -> Mapping[SessionId, Evidence]: ...

    def pins(self) -> Sequence[Pin]: ...

    def pin(self, pin: Pin) -> None:
        """Replaces what the same side (owner or admin) said of the same checkpoint."""
        ...

    def unpin(self, pin: Pin) -> None: ...

    def announced(self) -> Mapping[str, Announced]:
        """What owners were told of the end of their sessions, by session."""
        ...

    def announce(self, announced: Announced) -> None:
        """Replaces what was stored of that session."""
        ...

    def unsettled(self, session: SessionId | None = None) -> Sequence[tuple[int, str, str, str]]:
        """(number, session, what, details) of intents without outcome, of one session or of all."""
        ...


class Notifier(Protocol):
    """Mail, webhook and hooks: the ways to people that start at the controller."""

    async def deliver(self, notice: Notice, only: Collection[str] = ()) -> Sequence[Delivery]:
        """Try every channel that is configured, or those of them that are among `only` where that
        names some, each in its own time, and say what became of it.
        Raises nothing: a channel that fails is a Delivery that is not `ok`."""
        ...

    def text(self, notice: Notice) -> str:
        """The notice as a terminal shows it: a few lines of plain text."""
        ...


class Meter(Protocol):
    """Measures some signals of one session on this node. Blocking; one thread calls it."""

    def read(self, seconds: float) -> Mapping[str, Reading]:
        """Readings by the names of `Signal` for the `seconds` since the last call. A signal that
        applies and can't be measured is there with the value None; nothing is raised for it."""
        ...

    def held(self) -> Sequence[GpuHeld]:
        """The session's GPUs as they were at the last `read`; empty where this meter knows none."""
        ...


class Tree(Protocol):
    """A session's processes on this node. Blocking; called in threads."""

    def blockers(self) -> Sequence[Blocker]: ...

    def used(self, since: float, optional: Collection[str]) -> Sequence[str]:
        """What was used after `since` (Unix seconds), looked at while the tree still runs, or is
        unknown and not in `optional`. From then on `activity` sees whatever arrives."""
        ...

    def memory(self) -> int:
        """Bytes that a dump will write at most."""
        ...

    def owner(self) -> Credentials:
        """Of the tree's root, by the kernel. DumpFailed where there is none."""
        ...

    def dump(self, staged: Staging) -> None:
        """Dump into the store; the tree is left stopped. DumpFailed: it was not dumped and may be
        stopped, `resume` is due."""
        ...

    def activity(self, since: float) -> Sequence[str]:
        """Of a stopped tree, as sentences: terminal input after `since` (Unix seconds), input that
        no process has read yet, and what came over its connections since `used` was called."""
        ...

    def save_surroundings(self, staged: Staging) -> None:
        """Private /dev/shm and /tmp and the job's output files into the store."""
        ...

    def describe(self, staged: Staging, contents: Contents, reason: str) -> Manifest: ...

    def resume(self) -> None:
        """Let a stopped tree run on as it was before. GpuNotGivenBack: it is still stopped, since
        a process of it can't be given back what it had on its GPUs."""
        ...

    def let_run(self) -> None:
        """Let a stopped tree run on as it is."""
        ...

    def kill(self) -> None:
        """End every process of the session. OperationFailed where some survive."""
        ...

    def put_back_outputs(self, opened: Opened) -> None:
        """Give the job's output files back what was in them. RestoreFailed."""
        ...

    def coming_back(self, opened: Opened) -> AbstractContextManager[None]:
        """While inside, what is to restore the checkpoint is there and waits for `restore`; without
        that it is ended and has done nothing. RestoreFailed."""
        ...

    def fits(self, manifest: Manifest) -> Sequence[str]:
        """See that files, ports and memory are as the checkpoint needs them, before anything of it
        is given out. What changed and is no hindrance, as sentences. DoesNotFit, which names
        all."""
        ...

    def restore(self, opened: Opened) -> None:
        """Bring the tree of a checkpoint back that is `coming_back`. RestoreFailed,
        IntegrityError: nothing is left behind."""
        ...


class Link(Protocol):
    """What reclaim-init is told; see docs/protocol.md. Blocking. AgentUnavailable: it is gone."""

    def hold(self) -> None: ...

    def unhold(self) -> None: ...

    def adopt_root(self, inner_pid: int) -> None: ...

    def end(self, status: int) -> None: ...


class Staging(Protocol):
    """A checkpoint on its way into the store. `images`: the small images that have arrived, for
    root to look at; `criu`: the directory of CRIU's socket and log."""

    folder: Path
    images: Path
    criu: Path

    def receive(self, name: str) -> AbstractContextManager[BinaryIO]:
        """What is written into it becomes the stream `name`."""
        ...

    def settle(self) -> None:
        """CRIU has ended: wait until all its images have arrived."""
        ...

    def size(self, name: str) -> int:
        """Bytes of a stream that was received."""
        ...

    def finish(self) -> Contents:
        """Everything is in: it is made durable."""
        ...

    def trouble(self) -> str:
        """Why it can't go on, empty where it can."""
        ...

    def cut(self) -> None:
        """Take in no more: whoever writes into it learns that by a broken pipe."""
        ...

    def close(self) -> None: ...


class Opened(Protocol):
    """A checkpoint on its way out, checked as it is read. `images`: a private copy of the small
    images, to be changed before CRIU asks for them; `criu` as in Staging."""

    manifest: Manifest
    work: Path
    images: Path
    criu: Path

    def ready(self) -> None:
        """Wait for `images`; everything else waits by itself. StoreUnavailable, IntegrityError."""
        ...

    def give(self) -> None:
        """Until here CRIU waits for the first image."""
        ...

    def send(self, name: str) -> AbstractContextManager[BinaryIO]:
        """The stream `name`, from front to back. IntegrityError at the end where it was cut."""
        ...

    def trouble(self) -> str: ...

    def close(self) -> None: ...


class NodeStore(Protocol):
    """Checkpoints as the agent uses them. StoreUnavailable, IntegrityError."""

    def check(self) -> int:
        """Free bytes; StoreUnavailable where the store can't be used."""
        ...

    def reserve(self, size: int) -> None:
        """See that there is room for `size` bytes."""
        ...

    def staging(self, session: SessionId, restarts: int) -> Path:
        """Where `stage` will write."""
        ...

    def stage(
        self,
        session: SessionId,
        restarts: int,
        owner: Credentials,
        note: Callable[[int], None],
    ) -> Staging:
        """CRIU will run as `owner`; `note` is told now and then how many bytes have arrived."""
        ...

    def discard(self, folder: Path) -> None:
        """What was staged there by anybody is forgotten. Raises nothing."""
        ...

    def commit(
        self,
        staged: Staging,
        session: SessionId,
        restarts: int,
        describe: Callable[[Contents], Manifest],
    ) -> Manifest: ...

    def open(self, session: SessionId, restarts: int) -> Opened: ...

    def read(self, session: SessionId, restarts: int) -> Manifest: ...

    def committed(self, session: SessionId) -> Sequence[int]: ...

    def committed_here(self, session: SessionId, restarts: int) -> bool:
        """Whether what this node dumped under this number was committed; the node alone is asked,
        and no older checkpoint of that number is taken for it."""
        ...

    def of_job(self, job_id: int, uid: int) -> list[str]:
        """Sessions (as text) under this job id and uid that have a committed checkpoint."""
        ...
