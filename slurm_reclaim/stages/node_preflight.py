"""preflight, on the node: what stands in the way of a hibernation, without touching anything.

Done soon after a session's start and now and then, so that its owner knows long before any warning;
and once more before the warning. What can't be looked at counts as standing in the way.
"""

from __future__ import annotations

from slurm_reclaim.errors import StoreUnavailable
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living
from slurm_reclaim.ports import Clock, NodeStore, Tree

# Often over before anybody reads of it: it counts when asked before a warning, and is not kept.
_PASSING = frozenset({"in-kernel"})


def preflight(
    session: NodeSession, tree: Tree, store: NodeStore, clock: Clock
) -> tuple[Blocker, ...]:
    """The blockers, kept with the session, too, unless it has moved on meanwhile."""
    found = list(tree.blockers())
    if not any(blocker.name == "no-process" for blocker in found):
        try:
            store.reserve(tree.memory())
        except StoreUnavailable as error:
            found.append(Blocker("store-space", error.message, error.hint))
    if session.living is Living.RUNNING:
        session.blockers = tuple(each for each in found if each.name not in _PASSING)
        session.looked = clock.now()
    return tuple(found)
