"""What of a session's GPU state can't be saved, named before anything is locked.

What the driver itself would refuse is found here where it can be seen from outside, because a
refused checkpoint can leave a process that is good for nothing (`failed`). Managed memory, handles
that were given to other processes through CUDA IPC, and CUPTI at work inside a process can't be
seen: there the driver's refusal is what is left.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence

from slurm_reclaim.adapters.cuda.holders import GDR, Holder
from slurm_reclaim.model import driver as drivers
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.node_session import GpuGrant

_SPAWN = "have workers started by spawn or forkserver, not by fork, or end them"


def of_holder(holder: Holder, why_none: str) -> Iterator[Blocker]:
    """`why_none`: the driver's word where it knows of no CUDA state, "" where there is some."""
    process = holder.process
    if GDR in holder.devices:
        yield Blocker("gdrdrv", f"{process} has {GDR} open", "end what uses GPUDirect RDMA")
    if why_none:
        if holder.gpu and holder.nvml and not holder.libcuda:
            what = f"{process} has {min(holder.gpu)} open through NVML"
            yield Blocker(
                "gpu-nvml", what, "end it: a GPU dashboard or monitor, such as nvidia-smi"
            )
        elif holder.gpu:
            what = f"{process} has {min(holder.gpu)} open and no CUDA state ({why_none})"
            yield Blocker("gpu-fork", what, f"its parent's, often a data loader's: {_SPAWN}")
        return
    if process.state in "Tt":
        what = f"{process} uses a GPU and is stopped (Ctrl-Z)"
        yield Blocker("gpu-stopped", what, "continue it: its GPU state can't be saved meanwhile")
    if holder.environment.get("CUDA_MPS_PIPE_DIRECTORY"):
        what = f"{process} was started with CUDA_MPS_PIPE_DIRECTORY"
        yield Blocker("mps", what, "the state of clients of MPS can't be saved; start without it")
    if path := holder.environment.get("CUDA_INJECTION64_PATH"):
        what = f"{process} was started with CUDA_INJECTION64_PATH={path}"
        yield Blocker("gpu-profiler", what, "start it without the profiler")
    if holder.tool:
        what = f"{process} has {holder.tool} mapped, a debugger's or profiler's"
        yield Blocker("gpu-profiler", what, "start it without that tool")
    if holder.probed:
        what = f"{process} was traced by uprobes"
        yield Blocker("gpu-probes", what, "CUDA hangs after a restore; leave it out of the tracing")


def of_peers(holders: Sequence[Holder]) -> Iterator[Blocker]:
    """`holders`: those with CUDA state. Two kernels of a notebook server on one card are none."""
    hint = "what processes share on GPUs can't be saved; end all but one"
    for holder in holders:
        if holder.shared:
            what = f"{holder.process} shares GPU memory with others ({holder.shared})"
            yield Blocker("gpu-peers", what, hint)
        elif len(holders) > 1 and holder.environment.get("WORLD_SIZE", "1") not in ("", "1"):
            what = f"{holder.process} is one of WORLD_SIZE={holder.environment['WORLD_SIZE']}"
            yield Blocker("gpu-peers", what, hint)


def of_driver(driver: str, holders: Sequence[Holder]) -> Iterator[Blocker]:
    """`driver`: its version."""
    if why := drivers.problem(driver, os.uname().machine):
        yield Blocker("gpu-driver", why, "GPU sessions of this node are watched, not hibernated")
        return
    if drivers.version(driver) >= drivers.FRAMEWORKS:
        return
    for holder in holders:
        if holder.framework:
            floor = drivers.written(drivers.FRAMEWORKS)
            what = f"{holder.process} has {holder.framework} mapped; driver {driver} is too old"
            yield Blocker("gpu-driver", what, f"frameworks come back with {floor} or later")
            return


def of_grant(grant: GpuGrant | None, mig: Collection[str]) -> Iterator[Blocker]:
    """`mig`: UUIDs of those of the job's cards that are split."""
    if grant is None:
        what = "a process of a job without GPUs uses one"
        yield Blocker("gpu-unconstrained", what, "set ConstrainDevices=yes in cgroup.conf")
        return
    if grant.shared in ("mps", "shard"):
        what = f"the job was given a share of a card (gres/{grant.shared})"
        name = "mps" if grant.shared == "mps" else "gpu-share"
        yield Blocker(name, what, "ask for a whole GPU: what others have on a card stays there")
    elif not grant.constrained:
        what = f"the job can open {len(grant.reachable)} GPUs and was given {grant.granted}"
        yield Blocker("gpu-unconstrained", what, "set ConstrainDevices=yes in cgroup.conf")
    for uuid in mig:
        what = f"the job's GPU {uuid} is split by MIG"
        yield Blocker("mig", what, "the driver can't save what is on a part of a card")
