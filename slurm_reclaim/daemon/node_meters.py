"""Which meters measure a session: one line for each kind of evidence."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakValueDictionary

from slurm_reclaim.adapters.gpu.meter import gpu_meter
from slurm_reclaim.adapters.jupyter.meter import JupyterMeter
from slurm_reclaim.adapters.proc.census import Census
from slurm_reclaim.adapters.proc.connections import Connections
from slurm_reclaim.adapters.proc.meters import CpuMeter, IoMeter, NetworkMeter, TerminalMeter
from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.ports import Meter

_CONNECTIONS = Connections()
_CENSUSES: WeakValueDictionary[tuple[int, int], Census] = WeakValueDictionary()


def census(session: NodeSession) -> Census:
    """The one of this incarnation, shared by all who ask for its processes."""
    key = (session.init, session.init_start)
    found = _CENSUSES.get(key)
    if found is None:
        found = _CENSUSES[key] = Census(session.init, session.relay, session.uid)
    return found


# Each gives a meter for the session, or None where it has nothing to measure there.
KINDS: tuple[Callable[[NodeSession, Config], Meter | None], ...] = (
    lambda session, _: CpuMeter(census(session)),
    lambda session, _: IoMeter(census(session)),
    lambda session, _: NetworkMeter(census(session), session.init, session.uid, _CONNECTIONS),
    lambda session, _: TerminalMeter(census(session), session.init),
    gpu_meter,
    # Of every session: a server may be started at any time.
    lambda session, _: JupyterMeter(session, census(session)),
)


def meters(session: NodeSession, config: Config) -> list[Meter]:
    return [meter for kind in KINDS if (meter := kind(session, config)) is not None]
