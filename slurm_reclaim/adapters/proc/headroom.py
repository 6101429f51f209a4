"""What is left on a node for one more session: memory, huge pages and its ports."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterable
from contextlib import suppress

from slurm_reclaim.adapters.proc.cgroup import V2, contents, of_process
from slurm_reclaim.adapters.proc.tree import PROC, kernel_text

_ADDRESS = re.compile(r"(tcp|udp)/(?:\[([^\]]*)\]|([^:]*)):(\d+)")


def of_job(pid: int) -> int | None:
    """Bytes that the job of a process may still take. Page cache does not count: the kernel takes
    it back. None where nothing limits or counts it."""
    directories = of_process(pid)
    try:
        if "memory" in directories:
            base = directories["memory"]
            limit, used = _number(f"{base}/memory.limit_in_bytes"), f"{base}/memory.usage_in_bytes"
            cache = rows(f"{base}/memory.stat", b"total_inactive_file", b"total_active_file")
        elif V2 in directories:
            base = directories[V2]
            # At memory.high, which Slurm sets, too, the kernel all but stops who wants more.
            limits = [_number(f"{base}/{name}") for name in ("memory.max", "memory.high")]
            limit = min((each for each in limits if each is not None), default=None)
            used = f"{base}/memory.current"
            cache = rows(f"{base}/memory.stat", b"inactive_file", b"active_file")
        else:
            return None
        return None if limit is None else max(0, limit - (_number(used) or 0) + cache)
    except (OSError, ValueError, IndexError):
        return None


def of_node() -> int | None:
    """Bytes of memory that are available on the node."""
    with suppress(OSError, ValueError, AttributeError):
        found = re.search(r"^MemAvailable:\s*(\d+) kB", kernel_text(PROC / "meminfo"), re.M)
        return int(found[1]) << 10 if found else None
    return None


def _number(path: str) -> int | None:
    """None for no limit (version 2 says "max", version 1 a number near 2**63). Raises OSError,
    ValueError."""
    text = contents(path).strip()
    number = 1 << 63 if text == b"max" else int(text)
    return None if number >= 1 << 62 else number


def rows(path: str, *names: bytes) -> int:
    """The sum of these rows of a cgroup's memory.stat, in bytes. Raises OSError, ValueError."""
    rows = dict(line.split(None, 1) for line in contents(path).split(b"\n") if b" " in line)
    return sum(int(rows.get(name, b"0")) for name in names)


def refused_ports(listening: Iterable[str]) -> list[str]:
    """Sentences about those of a session's addresses that can't be bound here now. Asked of the
    kernel, which alone knows: each is bound, as CRIU will, and let go at once; nobody is listened
    for."""
    found = []
    for text in listening:
        match = _ADDRESS.fullmatch(text)
        if match is None:
            continue
        kind, v6, v4, port = match.groups()
        if number := _bind(kind, v6, v4, int(port)):
            if number == errno.EADDRINUSE:
                found.append(f"port {text} is taken")
            elif number == errno.EADDRNOTAVAIL:
                found.append(f"{v6 or v4} is no address of this node ({text})")
            # else: CRIU, which has fewer rights or more, is to say
    return found


def _bind(kind: str, v6: str | None, v4: str, port: int) -> int:
    """An errno, 0 where it can be bound."""
    family = socket.AF_INET6 if v6 is not None else socket.AF_INET
    try:
        with socket.socket(
            family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM
        ) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((v6 if v6 is not None else v4, port))
    except OSError as error:
        return error.errno or 0
    return 0
