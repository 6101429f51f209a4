"""Addresses of nodes as a site writes them down: `n[1-64]=10.2.0.0/16`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Place:
    """Nodes, as Slurm writes lists of them, and a network in which they may be seen."""

    nodes: str
    network: Network


def parse_place(text: str) -> Place:
    """Raises ValueError with what is wrong."""
    nodes, equals, address = text.partition("=")
    if not equals or not nodes.strip():
        raise ValueError(f"{text!r} is not written NODES=ADDRESS")
    try:
        return Place(nodes.strip(), ipaddress.ip_network(address.strip()))
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
