"""Which of the node's GPUs are a job's.

Slurm's own numbers don't tell: SLURM_JOB_GPUS counts in the order of gres.conf, which need be that
of neither device files nor NVML (seen on Slurm 24.11: two lines in the other order, and the job
that was told 1 could open /dev/nvidia0 alone), and a job with shards is told nothing. What the
kernel lets the job open can't lie, so reclaim-init, which is in the job's device cgroup, asks it
with access(2) for each /dev/nvidiaN, on cgroup v1 and v2 alike (the list file of v1 says `a *:*`
and v2 has none). Device file minors are NVML's, and by those the UUIDs are found.

Slurm's variables still tell how many cards there must be, and whether they are shared. Where
devices are not constrained, every card can be opened: then the job's are those on which its
processes have a context (see `meter`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slurm_reclaim.model.node_session import GpuGrant


def grant(attached: Mapping[str, str], started: Mapping[str, str] | None) -> GpuGrant | None:
    """Of what reclaim-init says at `attach` and the plugin said at `start` (None: the agent was
    away then). None where the job has no GPU."""
    if "gpus" not in attached and started is None and Path("/dev/nvidia0").exists():
        return GpuGrant((), 0, 0, "unknown")  # a reclaim-init from before an upgrade
    reachable = _numbers(attached.get("gpus", ""))
    present = len(_numbers(attached.get("gpu_files", "")))
    if started is None:
        # Whole cards or shares of some can't be told: what holds for shares holds for both.
        return GpuGrant(reachable, present, 0, "unknown") if reachable else None
    listed = [word for word in started.get("env.SLURM_JOB_GPUS", "").split(",") if word]
    shared = ""
    if _number(started.get("env.SLURM_SHARDS_ON_NODE", "")) and not listed:
        shared = "shard"
    elif "env.CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in started and listed:
        shared = "mps"
    if not listed and not shared:
        return None
    return GpuGrant(reachable, present, len(listed), shared)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(word) for word in text.split(",") if word.isdecimal()}))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
