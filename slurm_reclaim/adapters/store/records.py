"""The agent's own memory on the node: one JSON file a session, so that a restarted agent knows
what it had in hand."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from slurm_reclaim.adapters.store.files import fsync_directory
from slurm_reclaim.errors import StoreUnavailable
from slurm_reclaim.model.node_session import NodeSession

log = logging.getLogger(__name__)


class SessionRecords:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def save(self, session: NodeSession) -> None:
        """Raises StoreUnavailable."""
        path = self._path(session.job_id)
        try:
            write_durably(path, msgspec.json.encode(session))
        except OSError as error:
            raise StoreUnavailable(f"{path}: {error.strerror}") from error

    def forget(self, session: NodeSession) -> None:
        self._path(session.job_id).unlink(missing_ok=True)

    def load(self) -> list[NodeSession]:
        found = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=NodeSession))
            except msgspec.MsgspecError as error:
                log.error("%s can't be read and is left alone: %s", path, error)
        return found

    def _path(self, job_id: int) -> Path:
        return self._folder / f"{job_id}.json"


def write_durably(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file so that after a crash there is the old or the new one, whole."""
    temporary = path.with_name(f".{path.name}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    fsync_directory(path.parent)
