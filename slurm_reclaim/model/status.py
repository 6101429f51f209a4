"""How the controller is doing, for `reclaim check` (GET /v1/status)."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_reclaim.model.order import NodeFacts


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """`age`: seconds since the agent's last report (-1: none since reclaimd started); `states`:
    Slurm's words; `sessions`: how many the agent reported."""

    name: str
    age: float = -1.0
    states: tuple[str, ...] = ()
    sessions: int = 0
    facts: NodeFacts = field(default_factory=NodeFacts)


@dataclass(frozen=True, slots=True)
class Status:
    """`slurm_age`: seconds since the last cluster-wide query that was answered (-1: none yet);
    `slurm_problem`: why the last one was not ("": it was); `sessions`: state -> how many;
    `brake`: why no idle session is hibernated ("": it is off);
    `nodes` is empty for callers who are neither root nor Slurm operators."""

    version: str
    mode: str
    cluster: str
    now: float
    started: float
    slurm_age: float
    slurm_problem: str = ""
    sessions: dict[str, int] = field(default_factory=dict)
    nodes: tuple[NodeStatus, ...] = ()
    brake: str = ""
