"""Uploads in the background: what they wait for, and what the controller is told of them. Copies
of what is deleted there go in the same way."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from slurm_reclaim.adapters import memory
from slurm_reclaim.errors import ReclaimError
from slurm_reclaim.model.upload import Upload

if TYPE_CHECKING:
    from slurm_reclaim.adapters.store.remote import RemoteStore

log = logging.getLogger(__name__)

RETRY = 30.0  # seconds


class NodeUploads:
    """One at a time, in a thread of its own: those of the loop may all be busy with dumps.
    `changed` is called when there is something new to report. What an earlier agent left is found
    by the marks in the store."""

    def __init__(self, store: RemoteStore, changed: Callable[[], None]) -> None:
        self._store = store
        self._changed = changed
        self._due = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "uploads")
        self._said = ""

    async def run(self) -> None:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._due.set)

        self._store.wake = wake
        while True:
            self._due.clear()
            try:
                if await loop.run_in_executor(self._thread, self._store.uploads.finish_all):
                    self._changed()
                    await loop.run_in_executor(self._thread, memory.give_back)
                self._say("")
                now = time.monotonic()
                await loop.run_in_executor(self._thread, self._store.copies.drop_deleted, now)
            except (ReclaimError, OSError) as error:
                self._say(str(error))
                self._changed()
            except Exception:
                log.exception("uploads")
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._due.wait(), RETRY)

    def _say(self, why: str) -> None:
        if why and why != self._said:
            log.warning("uploads wait: %s", why)
        elif self._said and not why:
            log.info("uploads go on")
        self._said = why

    def told(self) -> tuple[Upload, ...] | None:
        return self._store.uploads.told()

    def acknowledged(self, uploads: tuple[Upload, ...]) -> None:
        self._store.uploads.acknowledged(uploads)
