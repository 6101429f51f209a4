"""Lists of node names, folded and expanded by ClusterShell (ports.NodeNames)."""

from __future__ import annotations

from collections.abc import Iterable

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from slurm_reclaim.errors import SchedulerUnavailable


class NodeSetNames:
    def fold(self, names: Iterable[str]) -> str:
        """`n[1-3],gpu7`; only the last number of a name is folded, as Slurm itself writes it."""
        folded = NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP)
        folded.fold_axis = (-1,)
        return str(folded)

    def expand(self, text: str) -> tuple[str, ...]:
        """Raises SchedulerUnavailable for what is no list of nodes."""
        if "[" not in text and "," not in text:
            return (text,) if text else ()
        try:
            return tuple(NodeSet(text, resolver=RESOLVER_NOGROUP))
        except NodeSetException as error:
            raise SchedulerUnavailable(
                f"Slurm's node list {text!r} can't be read: {error}"
            ) from None
