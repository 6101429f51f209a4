"""A lab's network: a bridge in a namespace of its own, and one namespace with one link per node.

No link ever exists in the machine's own network namespace, so nothing there changes and labs with
the same addresses run side by side.
"""

from __future__ import annotations

from pathlib import Path

from reclaim_lab.places import LabPlaces, address, host_number
from reclaim_lab.shell import run

NETNS_DIR = Path("/run/netns")


def _batch(commands: list[str], doing: str, netns: str | None = None) -> None:
    inside = ["-n", netns] if netns else []
    run(["ip", *inside, "-batch", "-"], doing=doing, text_in="\n".join(commands) + "\n")


def _exists(netns: str) -> bool:
    return (NETNS_DIR / netns).exists()


def create_switch(places: LabPlaces) -> None:
    if _exists(places.switch):
        return
    run(["ip", "netns", "add", places.switch], doing="making the lab's network namespace")
    _batch(
        ["link set lo up", "link add bridge type bridge forward_delay 0", "link set bridge up"],
        "making the lab's bridge",
        places.switch,
    )


def plug_in(places: LabPlaces, node: str) -> None:
    """A fresh namespace for the node: after a power failure no socket of its past is left."""
    unplug(places, node)
    netns, link = places.netns(node), places.link(node)
    mac = f"02:52:4c:00:00:{host_number(node):02x}"
    run(["ip", "netns", "add", netns], doing=f"making the network namespace of {node}")
    _batch(
        [
            f"link add {link} type veth peer name eth0 address {mac} netns {netns}",
            f"link set {link} master bridge up",
        ],
        f"plugging in {node}",
        places.switch,
    )
    _batch(
        ["link set lo up", f"addr add {address(node)}/24 brd + dev eth0", "link set eth0 up"],
        f"giving {node} its address",
        netns,
    )


def cut_cable(places: LabPlaces, node: str) -> None:
    """First of all in a power failure: a dying process must not say good-bye to its peers."""
    link = places.link(node)
    if _exists(places.switch) and _has_link(places, link):
        run(["ip", "-n", places.switch, "link", "set", link, "down"], doing=f"unplugging {node}")


def _has_link(places: LabPlaces, link: str) -> bool:
    shown = run(["ip", "-n", places.switch, "-o", "link"], doing="looking at the lab's links")
    return f" {link}@" in shown


def unplug(places: LabPlaces, node: str) -> None:
    # The link first and by name: with its namespace alone it would go some time later, and the
    # name would be taken when the node boots again.
    link, netns = places.link(node), places.netns(node)
    if _exists(places.switch) and _has_link(places, link):
        run(["ip", "-n", places.switch, "link", "del", link], doing=f"unplugging {node}")
    if _exists(netns):
        run(["ip", "netns", "del", netns], doing=f"removing the network namespace of {node}")


def remove_switch(places: LabPlaces) -> None:
    if _exists(places.switch):
        run(["ip", "netns", "del", places.switch], doing="removing the lab's network namespace")
