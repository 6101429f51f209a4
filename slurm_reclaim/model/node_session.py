"""A session as the agent of its node keeps it (on disk, so that it survives the agent)."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.checkpoint import Needs
from slurm_reclaim.model.order import Living
from slurm_reclaim.model.session import Progress


@dataclass(frozen=True, slots=True)
class GpuGrant:
    """The GPUs that Slurm gave a job on this node. `reachable`: minor numbers of the cards that the
    job's processes can open; `present`: how many device files there are; `granted`: how many whole
    cards Slurm counts for it (0: none, it has shares); `shared`: "shard", "mps" or "unknown" where
    other jobs may be on the same cards."""

    reachable: tuple[int, ...]
    present: int
    granted: int
    shared: str = ""

    @property
    def constrained(self) -> bool:
        """Whether the cards it can open are the cards it was given."""
        if self.granted:
            return 0 < len(self.reachable) <= self.granted
        return 0 < len(self.reachable) < self.present or self.present == 1


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of the job's memory that was raised: its file, and the bytes that stood there."""

    path: str
    before: int


@dataclass(slots=True)
class NodeSession:
    """PIDs are the agent's; `*_start` clock ticks since boot, which make a PID a name for good,
    within one `boot` (the kernel's id of it; a session from before an upgrade has none).
    `child` is the batch script of a fresh start (0 after a restore), `root` the inner PID of the
    tree's root. `stopped` are inner PIDs that the user had stopped before we froze the tree;
    `cancelled`: why a hibernation at work shall come to nothing; `staged` is where a dump at work
    writes, for `order`; `worker` the CRIU at work. With `gpus_told`, `gpus` None means that the
    job has none; a session from before an upgrade was not asked. `accept`: files that may have
    changed since the checkpoint, by the owner's word; `changed`: sentences about those that had
    and were no hindrance; `looked`: Unix seconds of the last look for blockers. `gpu_taken`: inner
    PIDs of processes whose GPU state was locked or copied to the host, or is about to be, and must
    be given back; `gpu_held` bytes that they held on their cards; `gpu_freed` of them those that
    NVML showed free; `limits`: what is to be put back; `unfinished`: what CRIU restores is not as
    it was before something more is done to it, of which only the agent at work knows."""

    job_id: int
    uid: int
    gid: int
    restarts: int
    mode: str
    living: Living
    relay: int = 0
    relay_start: int = 0
    init: int = 0
    init_start: int = 0
    child: int = 0
    root: int = 0
    session: str = ""
    started: float = 0.0
    private_tmp: str = ""
    block_io_uring: bool = False
    held: bool = False
    restored: bool = False
    checkpoint: int = -1
    checkpoint_bytes: int = 0
    checkpoint_stored: int = 0
    needs: Needs | None = None
    stopped: tuple[int, ...] = ()
    staged: str = ""
    order: str = ""
    cancelled: str = ""
    worker: int = 0
    worker_start: int = 0
    reason: str = ""
    blockers: tuple[Blocker, ...] = ()
    gpus: GpuGrant | None = None
    gpus_told: bool = False
    accept: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    looked: float = 0.0
    gpu_taken: tuple[int, ...] = ()
    gpu_held: int = 0
    gpu_freed: int = 0
    limits: tuple[Limit, ...] = ()
    boot: str = ""
    unfinished: bool = False
    progress: Progress = field(default_factory=Progress)
