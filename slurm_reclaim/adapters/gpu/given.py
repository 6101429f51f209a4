"""The cards that a job was really given, looked at before anything of a restore starts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from slurm_reclaim.adapters.gpu.watch import STARTING, NvmlWatch, Round, nvml
from slurm_reclaim.errors import OperationFailed
from slurm_reclaim.model import driver as drivers
from slurm_reclaim.model.checkpoint import GpuCard, GpuNeeds
from slurm_reclaim.model.node_session import GpuGrant
from slurm_reclaim.policy import cards

PATIENCE = 60.0  # seconds; the start of NVML on a node without persistence mode wakes every card
FRESH = 5.0
_IS_LOST = "gpu is lost"  # NVML_ERROR_GPU_IS_LOST, as nvml_child has the library's words
_SHARED = {
    "shard": "the job was given a share of a card (gres/shard); CUDA state needs a whole one",
    "mps": "the job was given a share of a card (gres/mps); CUDA state needs a whole one",
}


def lacks(needs: GpuNeeds, grant: GpuGrant | None, watch: NvmlWatch | None = None) -> list[str]:
    """Every requirement of the CUDA half of a checkpoint that the job's cards fail, as sentences;
    what can't be told is one. Blocking. `watch` is the agent's own but for tests."""
    if grant is None:
        return cards.lacks(needs, (), needs.driver, "")
    if grant.shared in _SHARED:
        return [_SHARED[grant.shared]]
    try:
        latest = _round(watch or nvml())
        given = job_cards(latest, grant)
    except OperationFailed as error:
        return [error.message]
    driver = str(latest.get("driver", ""))
    return cards.lacks(needs, given, driver, drivers.problem(driver, os.uname().machine))


def job_cards(latest: Round, grant: GpuGrant, *, without_lost: bool = False) -> tuple[GpuCard, ...]:
    """Every card that the job can open, in NVML's order; `used` is what anybody has on it. Raises
    OperationFailed where NVML does not tell of one of them. `without_lost`: those that it calls
    lost are left out."""
    listed = latest["cards"]
    found = []
    for minor in grant.reachable:
        card = next((each for each in listed if each["minor"] == minor), None)
        if card is None:
            raise OperationFailed(f"NVML has no card /dev/nvidia{minor}{_lost(listed)}")
        if without_lost and _IS_LOST in card.get("error", ""):
            continue
        if "error" in card:
            raise OperationFailed(f"card {card['index']} ({card['uuid']}): {card['error']}")
        total, used = card["memory"]
        if used < 0:
            raise OperationFailed(f"NVML does not tell the memory of GPU {card['uuid']}")
        whole = GpuCard(card["uuid"], card["model"], total, used, card["mig"])
        found.append((card["index"], whole))
    return tuple(card for _, card in sorted(found, key=lambda pair: pair[0]))


def _lost(listed: Iterable[Round]) -> str:
    lost = "; ".join(f"card {card['index']}: {card['error']}" for card in listed if "error" in card)
    return f" ({lost})" if lost else ""


def _round(watch: NvmlWatch) -> Round:
    """One of just now. Raises OperationFailed."""
    deadline = time.monotonic() + PATIENCE
    while True:
        rounds, why = watch.rounds(time.time() - FRESH)
        if rounds:
            return rounds[-1]
        if why != STARTING or time.monotonic() > deadline:
            raise OperationFailed(f"what GPUs the job was given is not known: {why}")
        time.sleep(0.2)
