"""Where a lab keeps things, what its nodes are called and which addresses they have."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from reclaim_lab.errors import LabError

CHECKOUT = Path(__file__).resolve().parents[3]
MOST_NODES = 200


def cache_dir() -> Path:
    """Image layers, shared by all labs of this machine."""
    return Path(os.environ.get("RECLAIM_LAB_CACHE", "/var/cache/slurm-reclaim-lab"))


def state_dir() -> Path:
    """What labs must keep between boots; on a real disk, since it plays one."""
    return Path(os.environ.get("RECLAIM_LAB_STATE", "/var/lib/slurm-reclaim-lab"))


def run_dir() -> Path:
    """What is only true while processes live."""
    return Path(os.environ.get("RECLAIM_LAB_RUN", "/run/slurm-reclaim-lab"))


@dataclass(frozen=True)
class LabPlaces:
    """The directories and names of one lab."""

    name: str

    def __post_init__(self) -> None:
        # Eight characters and a node's name still make a link name the kernel takes.
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,11}", self.name):
            raise LabError(
                f"lab name {self.name!r} must be 1 to 12 of a-z, 0-9 and -, a letter first"
            )

    @property
    def state(self) -> Path:
        return state_dir() / self.name

    @property
    def settings(self) -> Path:
        return self.state / "lab.json"

    @property
    def shared(self) -> Path:
        return self.state / "shared"

    @property
    def run(self) -> Path:
        return run_dir() / self.name

    @property
    def cluster_name(self) -> str:
        """Slurm wants lower case letters, digits and underscores."""
        return self.name.replace("-", "_")

    def node_state(self, node: str) -> Path:
        return self.state / "nodes" / node

    def netns(self, node: str) -> str:
        return f"lab-{self.name}-{node}"

    @property
    def switch(self) -> str:
        """The network namespace that holds the bridge; attached to nothing of the host's."""
        return f"lab-{self.name}-switch"

    def link(self, node: str) -> str:
        """The switch's end of a node's cable; at most 15 characters."""
        return f"{self.name[:10]}-{node}"


def node_names(compute_nodes: int) -> list[str]:
    if not 1 <= compute_nodes <= MOST_NODES:
        raise LabError(f"a lab has 1 to {MOST_NODES} compute nodes, not {compute_nodes}")
    return ["ctl", *(f"n{number}" for number in range(1, compute_nodes + 1))]


def host_number(node: str) -> int:
    """Last part of the node's address and of its MAC address."""
    return 1 if node == "ctl" else 10 + int(node[1:])


def address(node: str) -> str:
    return f"10.77.0.{host_number(node)}"
