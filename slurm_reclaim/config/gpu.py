"""The table [gpu] (schema.py)."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_reclaim.config.values import Path, Seconds, setting


@dataclass(frozen=True)
class Gpu:
    """[gpu]: How the state of GPUs is saved (docs/gpu.md). A call that takes longer than these
    allow is given up, and the session gets back what was taken from it."""

    lock_timeout: Seconds = setting(
        Seconds(60), "What was given to a GPU must come to its end within this time.", least=1
    )
    call_timeout: Seconds = setting(
        Seconds(120), "To copy the memory of the GPUs to the host, or back.", least=1
    )
    time_per_gib: Seconds = setting(
        Seconds(5), "The same: so much more for each GiB that the session holds on them."
    )
    raise_memory: bool = setting(
        False,
        "Raise the job's memory limit while its GPU memory lies in the host's, as far as the node "
        "has memory available; else a session without room for it is not hibernated.",
    )
    cuda_checkpoint: Path = setting(
        Path("/usr/bin/cuda-checkpoint"),
        "NVIDIA's program, used where the Python package cuda-bindings is not installed.",
    )
