"""Which meters measure a session: one line for each kind of evidence."""

from __future__ import annotations

from collections.abc import Callable

from slurm_reclaim.adapters.gpu.meter import gpu_meter
from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.ports import Meter

# Each gives a meter for the session, or None where it has nothing to measure there.
KINDS: tuple[Callable[[NodeSession, Config], Meter | None], ...] = (gpu_meter,)


def meters(session: NodeSession, config: Config) -> list[Meter]:
    return [meter for kind in KINDS if (meter := kind(session, config)) is not None]
