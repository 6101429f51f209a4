"""The keys of the checkpoint store, as they stand in their file: one a line, the oldest first.

    key 3f9a61c2 2026-11-29T10:00:00Z <64 hex digits>

Every key that is listed opens what it has sealed; the newest whose time has come seals what is new.
A key is put into the file before its time, so that all nodes have it when the first one uses it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

SECRET_BYTES = 32
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class StoreKey:
    """`since`: Unix seconds from which on it seals. `secret` is shown nowhere."""

    since: float
    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Made from the key itself, so that two keys never share one."""
        return derive(self.secret, "key id")[:4].hex()

    def line(self) -> str:
        since = datetime.fromtimestamp(self.since, timezone.utc).strftime(_TIME)
        return f"key {self.id} {since} {self.secret.hex()}"


def derive(secret: bytes, purpose: str) -> bytes:
    """A key of its own for each purpose (NIST SP 800-108 with HMAC-SHA256, one block)."""
    return hmac.digest(secret, b"slurm-reclaim store 1: " + purpose.encode(), hashlib.sha256)


def parse(text: str) -> tuple[StoreKey, ...]:
    """Raises ValueError with what is wrong, and in which line; never with a key."""
    found: list[StoreKey] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            found.append(_parse(line.split()))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    if not found:
        raise ValueError("there is no key in it")
    if len({key.id for key in found}) < len(found):
        raise ValueError("a key is listed twice")
    return tuple(found)


def _parse(words: Sequence[str]) -> StoreKey:
    if len(words) != 4 or words[0] != "key":
        raise ValueError("is not written: key ID TIME SECRET")
    try:
        since = datetime.strptime(words[2], _TIME).replace(tzinfo=timezone.utc).timestamp()
        secret = bytes.fromhex(words[3])
    except ValueError:
        raise ValueError("the time or the secret can't be read") from None
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"the secret has {len(secret)} bytes instead of {SECRET_BYTES}")
    key = StoreKey(since, secret)
    if key.id != words[1]:
        raise ValueError(f"the secret is not that of key {words[1]}")
    return key


def sealing(keys: Sequence[StoreKey], now: float) -> StoreKey:
    """The key that seals at `now`: of those whose time has come the newest, of two of one time the
    one listed last. Where the clock says that none has begun, the first one."""
    begun = [key for key in keys if key.since <= now]
    if not begun:
        return min(keys, key=lambda key: key.since)
    return max(reversed(begun), key=lambda key: key.since)
