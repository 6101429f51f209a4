"""What the small world of world.py is made of: jobs, nodes' agents and the trees they know."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.checkpoint import Needs
from slurm_reclaim.model.order import Living, NodeFacts, Outcome, Result
from slurm_reclaim.model.sample import GpuHeld, Reading

ALICE, BOB = 2001, 2002
QUIET = {name: Reading(0.0) for name in ("cpu", "io", "network", "terminal")}
FIT = NodeFacts(
    arch="x86_64", kernel="6.18.5-1", cpu_flags="avx2 sse2", xsave=832, criu="4.2.1", criu_ok=True,
    plugin_seen=True, store_ok=True, version="0.1.0", glibc="2.41", glibc_build="cafe",
    store_orders=True, mounts=("/home nfs4", "/opt ext4", "/shared nfs"), hugepages=4 << 20,
)  # fmt: skip
NEEDS = Needs(
    "x86_64", "6.18.5-1", "4.2.1", 400, 1 << 20, cpu_flags="avx2 sse2", xsave=832, glibc="2.41",
    glibc_build="cafe", mounts=("/home nfs4", "/opt ext4", "/shared nfs"), hugepages=4 << 20,
)  # fmt: skip


@dataclass
class SimJob:
    job_id: int
    uid: int = ALICE
    state: str = "PENDING"
    reason: str = ""
    restarts: int = 0
    submitted: int = 0
    node: str = ""
    started: float = 0.0
    time_limit: int = 3600
    held: bool = False
    admin_hold: bool = False
    comment: str = "my notebook"
    admin_comment: str = "JS1:abc"
    excluded: str = ""
    begin: float = 0.0
    batch: bool = True
    requeue: bool = True
    node_count: int = 1
    het: bool = False
    array: tuple[int, int] | None = None
    qos: str = "normal"
    completing_to: str = ""


@dataclass
class Tree:
    """A session on a node, as its agent knows it."""

    job_id: int
    uid: int
    restarts: int
    living: Living
    session: str = ""
    restored: bool = False
    checkpoint: int = -1
    reason: str = ""
    measured: float = 0.0
    started: float = 0.0

    @property
    def alive(self) -> bool:
        return self.living in (Living.RUNNING, Living.DUMPING, Living.RESTORING)


@dataclass
class Agent:
    node: str
    up: bool = True
    boot: str = "boot-1"
    facts: NodeFacts = FIT
    trees: dict[int, Tree] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    hibernate: Outcome = Outcome.DONE
    restore_fails: str = ""
    changed_file: str = ""  # that a restore fails for unless it is accepted
    looked: float = 0.0
    readings: dict[str, Reading] = field(default_factory=lambda: dict(QUIET))
    measures: bool = True
    blockers: tuple[Blocker, ...] = ()
    looks: bool = True
    deaf: bool = False  # it does not get round to notices
    needs: Needs = NEEDS  # of what it saves
    gpus: tuple[GpuHeld, ...] = ()  # that each of its sessions holds
    terminals: int = 1
    terminal_texts: list[str] = field(default_factory=list)
