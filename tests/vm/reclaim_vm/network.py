"""The machines' network: a bridge in a network namespace of its own, and a tap for each.

QEMU runs in that namespace, too: nothing of it is ever in the machine's own, and there is no way
out of it.
"""

from __future__ import annotations

from pathlib import Path

from reclaim_lab.shell import run
from reclaim_vm.places import GATE, Places, address

NETNS_DIR = Path("/run/netns")


def entering(places: Places) -> list[str]:
    return ["nsenter", f"--net={NETNS_DIR / places.netns}", "--"]


def create(places: Places) -> None:
    if (NETNS_DIR / places.netns).exists():
        return
    run(["ip", "netns", "add", places.netns], doing="making the machines' network namespace")
    _batch(
        places,
        "link set lo up",
        "link add bridge type bridge forward_delay 0",
        f"addr add {GATE}/24 dev bridge",
        "link set bridge up",
    )


def plug_in(places: Places, node: str) -> None:
    unplug(places, node)
    _batch(
        places,
        f"tuntap add mode tap {node}",
        f"link set {node} master bridge up",
        # A machine that boots again is the same one: what was asked before it was up is void.
        f"neigh flush to {address(node)}",
    )


def unplug(places: Places, node: str) -> None:
    if (NETNS_DIR / places.netns).exists():
        run([*entering(places), "sh", "-c", f"! ip link show {node} >/dev/null 2>&1 || "
             f"ip link del {node}"], doing=f"unplugging {node}")  # fmt: skip


def remove(places: Places) -> None:
    if (NETNS_DIR / places.netns).exists():
        run(["ip", "netns", "del", places.netns], doing="removing the machines' network namespace")


def _batch(places: Places, *commands: str) -> None:
    run(
        ["ip", "-n", places.netns, "-batch", "-"],
        doing="setting up the machines' network",
        text_in="\n".join(commands) + "\n",
    )
