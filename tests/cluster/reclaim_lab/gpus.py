"""The simulated GPUs of a node: device files that lead to no card, and what the stand-ins for
NVIDIA's libraries (tests/gpu) tell of them, from a file that tests write anew."""

from __future__ import annotations

import os
from pathlib import Path

SCRIPT = "/run/simulated-gpu/nvml"
MEMORY = "/var/lib/simulated-gpu"
"""Where simulated CUDA processes keep their device memory: on the node's disk, since a tmpfs would
be counted as memory of the job."""
GIB = 1 << 30
_CPUID = 203  # its minor number is a CPU's
_BTRFS_CONTROL = (10, 234)


def device_files(gpus: int) -> dict[str, tuple[int, int]]:
    """Device numbers by name in /dev. Where this kernel has them, those of drivers that anybody may
    open without any effect and that CRIU can't dump, as it can't those of real GPUs: a process
    that holds one open is found out. Else such without a driver, which can't be opened at all."""
    if gpus == 0:
        return {}
    taken = _majors()
    cards = _CPUID if _CPUID in taken and gpus <= (os.cpu_count() or 0) else _free(taken)
    files = {f"nvidia{number}": (cards, number) for number in range(gpus)}
    shared = _BTRFS_CONTROL if _has_btrfs_control() else (_free(taken), 255)
    return {**files, "nvidiactl": shared, "nvidia-uvm": shared}


def _majors() -> set[int]:
    text = Path("/proc/devices").read_text().split("Block devices:")[0]
    return {
        int(line.split()[0])
        for line in text.splitlines()
        if line.split() and line.split()[0].isdigit()
    }


def _free(taken: set[int]) -> int:
    return next(major for major in range(240, 255) if major not in taken)


def _has_btrfs_control() -> bool:
    lines = Path("/proc/misc").read_text().splitlines()
    return [str(_BTRFS_CONTROL[1]), "btrfs-control"] in [line.split() for line in lines]


def uuid(node: str, minor: int) -> str:
    return f"GPU-51b00000-0000-0000-0000-{node.encode().hex()[:8]:0>8}{minor:04x}"


def idle(node: str, gpus: int) -> str:
    """A script of cards that do nothing. On every other node NVML counts them the other way round,
    so that a card's number on one node says nothing about the next."""
    lines = [
        "# Written by tests/cluster/lab; tests/gpu/README.md tells the lines.",
        "driver 580.65.06",
    ]
    minors = list(range(gpus))
    for minor in reversed(minors) if node[-1] in "02468" else minors:
        lines += [
            "card",
            f"uuid {uuid(node, minor)}",
            "name Simulated GPU",
            f"minor {minor}",
            f"vram {80 * GIB} {GIB}",
            "rates 0 0 0 0",
            "pcie 0 0",
            "mig 0",
            *(f"wave {kind} 60 0 0" for kind in ("gpu", "memory", "encoder", "decoder")),
        ]
    return "\n".join(lines) + "\n"
