"""Sockets of a session: which kinds it has, who is at the other end, and what is unread.

The session shares the node's network namespace; /proc/PID/net tells of its TCP sockets, and `ss`
(iproute2) of the peers of Unix sockets, which /proc does not.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterable, Mapping

from slurm_reclaim.adapters.proc import sockdiag
from slurm_reclaim.adapters.proc.connections import to_elsewhere
from slurm_reclaim.adapters.proc.tree import PROC, Process, descriptors, socket_inode
from slurm_reclaim.model.blocker import Blocker

KNOWN_PROTOCOLS = {
    "TCP", "TCPv6", "UDP", "UDPv6", "UDP-Lite", "UDPLITEv6", "UNIX", "UNIX-STREAM", "UNIX-DGRAM",
    "NETLINK", "PACKET", "RAW", "RAWv6", "PING", "PINGv6",
}  # fmt: skip


def protocol(path: str) -> str:
    """The protocol of the socket at `/proc/PID/fd/N`, empty where unknown."""
    try:
        return os.getxattr(path, "system.sockprotoname").rstrip(b"\0").decode()
    except OSError:
        return ""


def of_processes(tree: Iterable[Process]) -> dict[int, Process]:
    """Socket inode -> a process of the session that holds it."""
    found = {}
    for process in tree:
        for _, target in descriptors(PROC / str(process.pid)):
            if (inode := socket_inode(target)) is not None:
                found[inode] = process
    return found


def outside_unix_peers(tree: list[Process]) -> list[Blocker]:
    """Unix sockets connected to a process outside of the session: CRIU can't dump half of one."""
    own = of_processes(tree)
    if not own:
        return []
    words = ["/usr/bin/ss", "-xaHn"]
    done = subprocess.run(words, env={"LC_ALL": "C"}, stdout=subprocess.PIPE, check=True)
    return unix_peers(done.stdout.decode(errors="backslashreplace"), own)


def unix_peers(listing: str, own: dict[int, Process]) -> list[Blocker]:
    """The pure half of `outside_unix_peers`: `listing` is what `ss -xaHn` printed."""
    names: dict[int, str] = {}
    pairs: list[tuple[int, int, str]] = []
    for line in listing.split("\n"):
        words = line.split()
        if len(words) < 8 or not words[5].isdigit() or not words[7].isdigit():
            continue
        here, there = int(words[5]), int(words[7])
        names[here] = words[4]
        pairs.append((here, there, words[0]))
    found = []
    for here, there, _kind in pairs:
        if here in own and there and there not in own:
            peer = names.get(there, "*")
            name = peer if peer != "*" else "a process outside of the session"
            found.append(
                Blocker(
                    "outside-unix-peer",
                    f"{own[here]} is connected to {name}",
                    "a Unix socket can't follow to another node; end the connection",
                )
            )
    return found


def received(tree: Iterable[Process], servers: Collection[int] = ()) -> dict[int, int]:
    """By inode, how many bytes each TCP connection of the session has got so far, of those that
    tell of somebody: to elsewhere, and those within the session of `servers` (PIDs), which hand on
    to kernels what somebody sent over a connection that may be over by now. Raises Unavailable."""
    own = of_processes(tree)
    return {each.inode: each.received for each in _telling(_tcp(own), own, servers)}


def arrived(
    tree: Iterable[Process], before: Mapping[int, int], servers: Collection[int] = ()
) -> list[str]:
    """What came over TCP for a stopped session, as sentences: bytes that no process has read yet,
    connections that nobody has accepted, and bytes received since `before` (see `received`), read
    or not. Raises Unavailable."""
    own = of_processes(tree)
    mine = _tcp(own)
    found = []
    for each in mine:
        if each.unread and each.state == sockdiag.LISTEN:
            found.append(f"a connection to port {each.port} arrived")
        elif each.unread:
            found.append(f"a message arrived on {each}")
    for each in _telling(mine, own, servers):
        if each.received != before.get(each.inode, 0):
            found.append(f"a message arrived on {each}")
    return list(dict.fromkeys(found))


def _telling(
    mine: list[sockdiag.Tcp], own: Mapping[int, Process], servers: Collection[int]
) -> list[sockdiag.Tcp]:
    ends = {(each.local, each.remote) for each in mine if own[each.inode].pid in servers}
    # Both ends of those: a kernel's answer tells of a question, too.
    inside = [e for e in mine if {(e.local, e.remote), (e.remote, e.local)} & ends]
    telling = {each.inode: each for each in [*to_elsewhere(mine), *inside] if _connected(each)}
    return list(telling.values())


def _connected(each: sockdiag.Tcp) -> bool:
    return each.state != sockdiag.LISTEN and each.received >= 0


def _tcp(own: Mapping[int, Process]) -> list[sockdiag.Tcp]:
    return [each for each in sockdiag.tcp() if each.inode in own] if own else []
