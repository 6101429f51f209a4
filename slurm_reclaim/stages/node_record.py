"""How the node stages keep the session's record."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from slurm_reclaim.errors import StoreUnavailable
from slurm_reclaim.model.node_session import NodeSession

Save = Callable[[NodeSession], None]


def save_if_possible(session: NodeSession, save: Save) -> None:
    """Where the work is done, a full disk must not turn it into a failure: the world itself shows
    a later agent what happened (`node_hibernate.recover`)."""
    with suppress(StoreUnavailable):
        save(session)
