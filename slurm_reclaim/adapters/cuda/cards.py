"""The job's cards as NVML shows them just now, and what of the session lies on each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_reclaim.adapters.gpu.given import job_cards
from slurm_reclaim.adapters.gpu.owners import Owners
from slurm_reclaim.adapters.gpu.watch import NvmlWatch, Round
from slurm_reclaim.errors import GpuUnavailable, OperationFailed
from slurm_reclaim.model.checkpoint import GpuCard
from slurm_reclaim.model.node_session import NodeSession

# NVML's start on a node without persistence mode wakes every card.
_PATIENCE = 60.0  # seconds
_OURS = ("job", "zombie")


@dataclass(frozen=True, slots=True)
class Seen:
    """`cards`: all that the job can open, in NVML's order, `used` of each what the session has
    there; `free` bytes of each by UUID; `pids` of the session that NVML lists on any of them."""

    driver: str
    cards: tuple[GpuCard, ...]
    free: Mapping[str, int]
    pids: frozenset[int]

    @property
    def used(self) -> int:
        return sum(card.used for card in self.cards)


def look(
    session: NodeSession,
    watch: NvmlWatch,
    expected: Sequence[int] = (),
    *,
    without_lost: bool = False,
) -> Seen:
    """By a round that began after this call. `expected`: PIDs of those that have CUDA state; where
    NVML does not list one of them, all that is taken on a card and is nobody else's counts as the
    session's. `without_lost`: of a card that fell off the bus nothing is asked. Raises
    GpuUnavailable where any of it can't be told."""
    latest = fresh(watch)
    every = whole(session, latest, without_lost=without_lost)
    owners = Owners(session.init, session.relay)
    if not owners.told:
        raise GpuUnavailable("the job's processes can't be told from others")
    listed = {card["uuid"]: _processes(card) for card in latest["cards"] if "error" not in card}
    own = {uuid: {p for p, _ in found if owners.of(p) in _OURS} for uuid, found in listed.items()}
    for uuid in own.keys() - {card.uuid for card in every}:
        if own[uuid]:
            name = owners.name(min(own[uuid]))
            raise GpuUnavailable(f"{name} is on {uuid}, which the job can't open")
    pids = frozenset().union(*(own[card.uuid] for card in every))
    cards = []
    for card in every:
        used = sum(_known(n, p, card) for p, n in listed[card.uuid] if p in own[card.uuid])
        if not pids.issuperset(expected):
            foreign = sum(n or 0 for p, n in listed[card.uuid] if p not in own[card.uuid])
            used = max(used, card.used - foreign)
        cards.append(replace(card, used=used))
    free = {card.uuid: max(0, card.memory - card.used) for card in every}
    return Seen(str(latest.get("driver", "")), tuple(cards), free, pids)


def ours(session: NodeSession, latest: Round) -> frozenset[int]:
    """PIDs of the session on any card of the node, also on one that it should not reach."""
    owners = Owners(session.init, session.relay)
    listed = (pid for card in latest["cards"] for pid, _, _ in card.get("processes") or ())
    return frozenset(pid for pid in listed if owners.of(pid) in _OURS)


def whole(
    session: NodeSession, latest: Round, *, without_lost: bool = False
) -> tuple[GpuCard, ...]:
    """All that the job can open, `used` of each what anybody has there. Raises GpuUnavailable."""
    if session.gpus is None:
        raise GpuUnavailable("the job has no GPU")
    try:
        return job_cards(latest, session.gpus, without_lost=without_lost)
    except OperationFailed as error:
        raise GpuUnavailable(error.message) from error


def fresh(watch: NvmlWatch, patience: float = _PATIENCE) -> Round:
    """A round that ended after this call, waited for at most so many seconds. Raises
    GpuUnavailable."""
    after, deadline = time.time(), time.monotonic() + patience
    watch.ask()
    while True:
        rounds, why = watch.rounds(after)
        if rounds:
            return rounds[-1]
        if time.monotonic() > deadline or ("starting" not in why and "answered" not in why):
            raise GpuUnavailable(why)
        time.sleep(0.1)


def _processes(card: Round) -> list[tuple[int, int | None]]:
    """(PID, bytes) of each process with a context there."""
    if card["processes"] is None:
        raise GpuUnavailable(f"{card['processes_error']}: GPU {card['uuid']}")
    return [(pid, held) for pid, held, _ in card["processes"]]


def _known(held: int | None, pid: int, card: GpuCard) -> int:
    if held is None:
        raise GpuUnavailable(f"NVML does not tell the memory of PID {pid} on {card.uuid}")
    return held
