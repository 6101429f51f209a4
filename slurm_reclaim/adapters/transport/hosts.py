"""Names of hosts and their addresses, as this host resolves them (ports.Hosts)."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Sequence

# Reports come every few seconds from every node: names are asked for anew now and then only, and
# sooner where the last answer was none or the wrong one.
FOR = 600.0  # seconds
AGAIN_AFTER = 10.0


class Resolver:
    def __init__(self) -> None:
        self._known: dict[str, tuple[float, frozenset[str]]] = {}

    async def addresses(self, names: Sequence[str], *, again: bool = False) -> frozenset[str]:
        found: set[str] = set()
        for name in names:
            found |= await self._of(name, again)
        return frozenset(found)

    async def _of(self, name: str, again: bool) -> frozenset[str]:
        asked, known = self._known.get(name, (float("-inf"), frozenset()))
        if time.monotonic() - asked < (FOR if known and not again else AGAIN_AFTER):
            return known
        # In a thread: name services may be slow.
        known = await asyncio.to_thread(_resolve, name)
        self._known[name] = (time.monotonic(), known)
        return known

    async def ours(self, address: str) -> bool:
        """Only an address of this host can be bound to."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                return False
        return True


def _resolve(name: str) -> frozenset[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    addresses = (ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found)
    return frozenset(str(one) for one in addresses)
