"""A job and a node as Slurm shows them, reduced to what we decide by."""

from __future__ import annotations

from dataclasses import dataclass

FINISHED = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL",
        "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT", "REVOKED",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Job:
    """One row of the cluster-wide query. `state` is Slurm's long word (RUNNING, PENDING,
    SPECIAL_EXIT, COMPLETING...); times are Unix seconds, 0 where unset; `restarts` is Slurm's
    restart count; `time_limit` and `time_used` are seconds, `time_limit` 0 for unlimited."""

    job_id: int
    uid: int
    user: str
    name: str
    account: str
    partition: str
    qos: str
    state: str
    reason: str
    restarts: int
    submitted: int
    started: int
    ends: int
    time_limit: int
    time_used: int
    nodes: tuple[str, ...]
    array_job_id: int = 0
    array_task: int | None = None
    held: bool = False
    tres: str = ""

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    @property
    def running(self) -> bool:
        return self.state in {"RUNNING", "SUSPENDED"}

    @property
    def suspended(self) -> bool:
        """Running, and stopped by Slurm: by an operator, or by preemption."""
        return self.state == "SUSPENDED"

    @property
    def waiting(self) -> bool:
        """Pending in any shape, held or not, and no longer completing its last run."""
        return self.state in {
            "PENDING", "SPECIAL_EXIT", "REQUEUE_HOLD", "REQUEUED", "RESV_DEL_HOLD",
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobDetail:
    """What is read for one job right before acting on it. `admin_hold`: an operator holds it, so
    that its owner may not release it."""

    job: Job
    comment: str
    admin_comment: str
    excluded_nodes: str
    batch: bool
    requeue: bool
    node_count: int
    het: bool
    std_out: str
    std_err: str
    work_dir: str
    admin_hold: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """`states` are Slurm's words in lower case, for example {"idle"} or {"down", "drain"}; `hosts`
    its NodeAddr and NodeHostName, names or addresses."""

    name: str
    states: frozenset[str]
    partitions: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        bad = {"down", "drain", "drained", "draining", "fail", "failing", "maint", "unknown"}
        return not (self.states & bad)
