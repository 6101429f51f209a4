"""What Slurm tells a job of its allocation, for sessions that were restored into another one.

Restored processes keep the environment that they were started with: other card numbers, another
node. The plugin gives what Slurm says now to the relay as its environment, which nobody but root
can read; from there it goes into a file that the session's owner alone can read.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from slurm_reclaim.adapters.proc.tree import PROC

log = logging.getLogger(__name__)

FOLDER = "environment"
RELAY = "reclaim-relay"
# The relay is a copy of slurmstepd for a moment, with slurmd's environment.
PATIENCE = 10.0  # seconds
_OF_THE_RELAY = ("PATH", "LANG")


def variables(relay: int) -> dict[str, str]:
    """Of the job that this relay stands for. Waits for it to become the relay; empty where it does
    not (it could not be executed, or has ended). Blocking."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if os.path.basename(os.readlink(PROC / str(relay) / "exe")) == RELAY:
                return _parsed((PROC / str(relay) / "environ").read_bytes())
        except OSError:
            return {}
        if time.monotonic() > deadline:
            return {}
        time.sleep(0.02)


def _parsed(content: bytes) -> dict[str, str]:
    found = {}
    for entry in content.split(b"\0"):
        name, equals, value = entry.decode("utf-8", "surrogateescape").partition("=")
        if equals and name not in _OF_THE_RELAY:
            found[name] = value
    return found


def publish(run: Path, job_id: int, uid: int, found: dict[str, str]) -> None:
    """Write it where `reclaim environment` looks; `run` is the agent's folder, which nobody but
    root can write to. Raises OSError."""
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    os.chmod(folder, 0o711)  # whatever the umask is
    handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")
    try:
        with open(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump({"job": job_id, "variables": found}, file, ensure_ascii=False)
            os.fchown(handle, uid, -1)
            os.fchmod(handle, 0o400)
            file.flush()
        os.rename(name, folder / str(job_id))
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def show(run: Path, job_id: int, uid: int, relay: int) -> None:
    """Both. A session goes on without: it is a convenience. Blocking."""
    try:
        if found := variables(relay):
            publish(run, job_id, uid, found)
    except OSError as error:
        log.warning("job=%s can't be shown its allocation: %s", job_id, error)


def sweep(run: Path, known: Collection[int]) -> None:
    """Take away what an agent that died has left of jobs that ended meanwhile."""
    with suppress(OSError):
        for path in (run / FOLDER).iterdir():
            if not (path.name.isdecimal() and int(path.name) in known):
                path.unlink(missing_ok=True)


def withdraw(run: Path, job_id: int) -> None:
    with suppress(OSError):
        os.unlink(run / FOLDER / str(job_id))
