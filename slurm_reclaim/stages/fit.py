"""Which nodes can restore a checkpoint, and for the others which requirement fails. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from slurm_reclaim.model.checkpoint import Needs
from slurm_reclaim.model.job import Job, Node
from slurm_reclaim.model.order import NodeFacts
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages.view import View

SILENT = "its agent is not heard of"
_FAILED = "a restore of this checkpoint failed there"


def only_there(node: str) -> str:
    return f"its checkpoint is on {node} only until it is uploaded"


@dataclass(frozen=True, slots=True)
class Fit:
    """`unfit`: node -> the requirement that fails there; only nodes that the job could get."""

    nodes: tuple[str, ...]
    unfit: dict[str, str]

    @property
    def silence(self) -> bool:
        """Whether agents are missing, so that waiting for them may help."""
        return any(reason == SILENT for reason in self.unfit.values())

    def explain(self, most: int = 5) -> str:
        lines = [f"{node}: {reason}" for node, reason in sorted(self.unfit.items())]
        more = [f"and {len(lines) - most} more"] if len(lines) > most else []
        return "; ".join(lines[:most] + more) or "the partition has no node"


def fit(
    session: Session, job: Job, view: View, now: float, silent_after: float, only: str = ""
) -> Fit:
    """Every node of the job's partitions, told apart. `only`: the one that may have the only copy
    of the checkpoint ("": any can get it)."""
    key = (session.needs, job.partition)
    unfit = view.memo.get(key)
    if not isinstance(unfit, dict):
        # Thousands of held jobs share a few kinds of checkpoint and partition.
        unfit = _unfit(session.needs, job.partition, view, now, silent_after)
        view.memo[key] = unfit
    bad = {name: _FAILED for name in session.bad_nodes if name in unfit}
    if session.fence:
        # S3: not anywhere else while the older incarnation may live there.
        lost = f"{session.fence} was lost and may still run the session"
        bad |= {name: lost for name in unfit if name != session.fence}
    if only:
        bad |= {name: only_there(only) for name in unfit if name != only}
    nodes = tuple(name for name, why in unfit.items() if not why and name not in bad)
    return Fit(nodes, {name: why for name, why in (unfit | bad).items() if why})


def _unfit(
    needs: Needs | None, partition: str, view: View, now: float, silent_after: float
) -> dict[str, str]:
    """Node -> the requirement that fails there, "" where it fits."""
    found = {}
    for node in _candidates(partition, view.nodes.values()):
        heard = view.fresh(node.name, now, silent_after)
        found[node.name] = SILENT if heard is None else lacking(needs, heard.report.facts)
    return found


def _candidates(partition: str, nodes: Iterable[Node]) -> list[Node]:
    wanted = set(partition.split(","))
    return [n for n in nodes if not n.partitions or wanted & set(n.partitions)]


def lacking(needs: Needs | None, facts: NodeFacts) -> str:
    """The requirement that a node with `facts` fails, "" where it meets all of them."""
    if not facts.plugin_seen:
        return "the SPANK plugin was not seen working there"
    if not facts.criu_ok:
        return f"CRIU is not usable: {facts.criu_problem or 'unknown problem'}"
    if not facts.store_ok:
        return f"the store is not usable: {facts.store_problem or 'unknown problem'}"
    if needs is None:
        return ""
    if facts.arch != needs.arch:
        return f"it is {facts.arch}, the checkpoint was made on {needs.arch}"
    if _version(facts.kernel) < _version(needs.kernel):
        return f"its kernel {facts.kernel} is older than {needs.kernel}"
    if needs.cpu_flags_digest and facts.cpu_flags_digest != needs.cpu_flags_digest:
        return "its CPU has other features"
    if _version(facts.criu) < _version(needs.criu):
        return f"its CRIU {facts.criu} is older than {needs.criu}"
    return ""


def _version(text: str) -> tuple[int, ...]:
    """Kernel releases carry the distribution's own numbers behind the first three."""
    found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else ()
