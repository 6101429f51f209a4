"""Small objects beside a session's checkpoints that say what is going on there now.

`.reading-<who>` while a node fetches, reads again or exports; `.staging-<n>` while one sends. Who
reads writes its word first and looks at the checkpoint then; who deletes takes the manifests away
first and looks for such words then (remote_collection.py). Whatever the order of the two, one of
them sees the other, as the server shows in a list what was written before.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from slurm_reclaim.adapters.store.answers import Held
from slurm_reclaim.adapters.store.bucket import Bucket
from slurm_reclaim.adapters.store.collection import LEASE, READING
from slurm_reclaim.errors import StoreUnavailable
from slurm_reclaim.model.ids import SessionId

log = logging.getLogger(__name__)

# What a checkpoint on its way counts on must not be deleted. One that is older was left behind.
GUARD = ".staging-"
GUARD_FOR = 86400.0  # seconds
# A word that could not be written within this time is done without: the controller, too, keeps
# those who read and those who delete apart.
_PATIENCE = 10.0


@contextmanager
def reading(bucket: Bucket, session: SessionId) -> Iterator[None]:
    """While inside, no collector deletes anything of this session, wherever it runs."""
    who = f"{os.uname().nodename}-{os.getpid()}.{secrets.token_hex(4)}"
    key = f"{session}/{READING}{who}"
    try:
        bucket.write(key, b"", time.monotonic() + _PATIENCE)
    except StoreUnavailable as error:
        log.warning("%s is read without a word of it: %s", session, error.message)
    try:
        yield
    finally:
        with suppress(StoreUnavailable):
            bucket.remove(key, time.monotonic() + _PATIENCE)


def reader(names: Mapping[str, Held], now: float, timeout: float) -> str:
    """Who reads the session whose keys are `names`; "" for nobody. `now` by the server's clock, a
    node takes no longer than `timeout` seconds to fetch."""
    lasts = max(LEASE, 2 * timeout)
    for name, word in names.items():
        if name.startswith(READING) and not _old(word, now, lasts):
            return name.removeprefix(READING)
    return ""


def on_their_way(names: Mapping[str, Held], now: float) -> set[int]:
    """Numbers of the checkpoints that are being sent."""
    return {
        int(number)
        for name, word in names.items()
        if (number := name.removeprefix(GUARD)) != name
        and number.isascii()
        and number.isdigit()
        and not _old(word, now, GUARD_FOR)
    }


def _old(word: Held, now: float, lasts: float) -> bool:
    """Never where the server does not say when it was written."""
    return bool(word.at) and now - word.at > lasts
