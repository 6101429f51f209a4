"""The simulated GPUs of a node: nothing but device files without a driver, and what the stand-in
for NVIDIA's library (tests/gpu) tells of them, from a file that tests write anew."""

from __future__ import annotations

SCRIPT = "/run/simulated-gpu/nvml"
GIB = 1 << 30


def uuid(node: str, minor: int) -> str:
    return f"GPU-51b00000-0000-0000-0000-{node.encode().hex()[:8]:0>8}{minor:04x}"


def idle(node: str, gpus: int) -> str:
    """A script of cards that do nothing."""
    lines = [
        "# Written by tests/cluster/lab; tests/gpu/README.md tells the lines.",
        "driver 580.65.06",
    ]
    for minor in range(gpus):
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
