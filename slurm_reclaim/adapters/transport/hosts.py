"""Names of hosts and their addresses, as this host resolves them (ports.Hosts)."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

# Reports come every few seconds from every node: names are asked for anew now and then only, and
# sooner where the last answer was none or the wrong one.
FOR = 600.0  # seconds
AGAIN_AFTER = 10.0
# Answers of the name service that are some: there is no such name, or it has no address.
_UNKNOWN = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


class Resolver:
    """A name service that is away changes nothing that is known, and keeps nobody waiting for whom
    something is: else all agents of a cluster would fall silent with it."""

    def __init__(self, resolve: Callable[[str], frozenset[str] | None] | None = None) -> None:
        self._resolve = resolve or _resolve
        self._known: dict[str, tuple[float, frozenset[str]]] = {}
        self._asking: dict[str, asyncio.Task[frozenset[str]]] = {}
        # Of its own: those of the loop read every agent's credentials.
        self._threads = ThreadPoolExecutor(8, "names")

    async def addresses(self, names: Sequence[str], *, again: bool = False) -> frozenset[str]:
        found: set[str] = set()
        for name in names:
            found |= await self._of(name, again)
        return frozenset(found)

    async def _of(self, name: str, again: bool) -> frozenset[str]:
        asked, known = self._known.get(name, (float("-inf"), frozenset()))
        if time.monotonic() - asked < (FOR if known and not again else AGAIN_AFTER):
            return known
        asking = self._asking.get(name)
        if asking is None:
            asking = asyncio.get_running_loop().create_task(self._ask(name, known))
            self._asking[name] = asking
        return known if known and not again else await asyncio.shield(asking)

    async def _ask(self, name: str, known: frozenset[str]) -> frozenset[str]:
        try:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._threads, self._resolve, name)
            known = known if found is None else found
            self._known[name] = (time.monotonic(), known)
            return known
        finally:
            del self._asking[name]

    async def ours(self, address: str) -> bool:
        """Only an address of this host can be bound to."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                return False
        return True


def _resolve(name: str) -> frozenset[str] | None:
    """None where that can't be told now."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return frozenset() if error.errno in _UNKNOWN else None
    except OSError:
        return None
    addresses = (ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found)
    return frozenset(str(one) for one in addresses)
