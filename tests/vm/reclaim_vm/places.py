"""Where the machines' disks and keys are, what they are called and which addresses they have."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from reclaim_lab.places import LabPlaces, host_number, node_names

NODES = node_names(2)
GATE = "10.78.0.254"
"""This machine's end, from which it logs in."""


def address(node: str) -> str:
    return f"10.78.0.{host_number(node)}"


def hosts() -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{address(name)} {name}" for name in NODES)]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Places(LabPlaces):
    """Of one cluster of machines; what a lab has of it, too, is where a lab has it."""

    @property
    def state(self) -> Path:
        return Path(os.environ.get("RECLAIM_VM_STATE", "/var/lib/slurm-reclaim-vm")) / self.name

    @property
    def run(self) -> Path:
        return Path(os.environ.get("RECLAIM_VM_RUN", "/run/slurm-reclaim-vm")) / self.name

    @property
    def netns(self) -> str:  # type: ignore[override]
        return f"vm-{self.name}"

    @property
    def key(self) -> Path:
        return self.state / "key"

    def disk(self, node: str) -> Path:
        return self.state / f"{node}.qcow2"

    def console(self, node: str) -> Path:
        return self.state / f"{node}.console"
