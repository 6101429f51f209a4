"""One interactive job under our care, as the controller keeps it in its journal."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_reclaim.model.checkpoint import Needs
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.notice import Delivery
from slurm_reclaim.model.sample import GpuHeld


@dataclass(frozen=True, slots=True)
class Saved:
    """What we changed on the job in Slurm and give back after the restore; `returned`: the comment
    is given back (the list of nodes can't be: Slurm takes it only for pending jobs)."""

    comment: str = ""
    excluded_nodes: str = ""
    time_limit: int = 0
    returned: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Long work as seen a moment ago. `step` is a word for people (dump, verify, restore...)."""

    step: str = ""
    done: int = 0
    total: int = 0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning, from the confirmed idleness to its end. Times are Unix seconds, 0 for not yet:
    `since` the idleness was confirmed, `looked` a preflight was ordered, `cleared` it found that
    nothing stands in the way,
    `asked` the notices went out, `deadline` what they say; `deliveries` what became of them;
    `comment` is the owner's own Comment in Slurm, `commented` that ours stands there instead;
    `failed`: the hibernation was tried and the session runs on."""

    id: str
    since: float
    looked: float = 0.0
    cleared: float = 0.0
    asked: float = 0.0
    deadline: float = 0.0
    deliveries: tuple[Delivery, ...] = ()
    comment: str = ""
    commented: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why no node of its partition can restore a checkpoint, `since` when (Unix seconds), and
    whether its owner and the admins were `told`."""

    since: float
    reason: str
    told: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """Where an incarnation was shown by an agent: its node, its restart count, and the kernel's
    boot id of that node."""

    node: str
    restarts: int
    boot: str


@dataclass(frozen=True, slots=True)
class Session:
    """`restarts` is the restart count of the incarnation that `state` speaks of; `since` Unix
    seconds of the last transition; `time_left` seconds of the time limit left at hibernation
    (0: unlimited); `checkpoint` the restart count whose checkpoint is the newest committed
    (-1: none) and `saved_on` the node that made it ("": not known); `bad_nodes` where a restore of
    that checkpoint failed; `needs` what a node must have to restore it; `fence` the lost node on
    which an older incarnation may still live ("": none).
    `uploaded` the restart count whose checkpoint is known to be at the remote place (-1: none);
    `set_back` runs that Slurm has forgotten, so that its restart count is lower than ours;
    `started` Unix seconds of this incarnation; `warned` the warning under way; `kept_until` and
    `cooldown_until` Unix seconds before which it is not warned; `shadowed` the last use after which
    shadow mode has noted what it would have done; `accepted` files that may have changed while it
    sleeps, by its owner's word; `freed_gpu` bytes of GPU memory that it held when it was saved
    last; `unfit`: no node can restore it until somebody changes one; `seen`: where an agent showed
    an incarnation last, whichever it was. `progress` and `gpus` (those it holds, as its agent last
    told) are of the moment and not kept."""

    id: SessionId
    user: str
    name: str
    account: str
    partition: str
    qos: str
    state: State
    reason: str
    since: float
    node: str = ""
    restarts: int = 0
    checkpoint: int = -1
    saved_on: str = ""
    checkpoint_bytes: int = 0
    time_left: int = 0
    tres: str = ""
    array_job_id: int = 0
    array_task: int | None = None
    bad_nodes: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    saved: Saved | None = None
    needs: Needs | None = None
    fence: str = ""
    uploaded: int = -1
    set_back: int = 0
    started: float = 0.0
    warned: Warned | None = None
    kept_until: float = 0.0
    cooldown_until: float = 0.0
    cooldown_reason: str = ""
    shadowed: float = 0.0
    accepted: tuple[str, ...] = ()
    progress: Progress = field(default_factory=Progress)
    freed_gpu: int = 0
    unfit: Unfit | None = None
    seen: Seen | None = None
    gpus: tuple[GpuHeld, ...] = ()

    @property
    def vram(self) -> int:
        """Bytes of GPU memory that it holds, as far as is known."""
        return sum(max(0, gpu.memory) for gpu in self.gpus)

    @property
    def job(self) -> str:
        """The job id as Slurm shows it to people."""
        if self.array_task is None:
            return str(self.id.job_id)
        return f"{self.array_job_id}_{self.array_task}"
