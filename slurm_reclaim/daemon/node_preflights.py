"""Looks at every session of the node now and then for what would stop a hibernation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from slurm_reclaim.adapters import memory
from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon.node_sessions import NodeSessions
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living
from slurm_reclaim.ports import Clock, NodeStore
from slurm_reclaim.stages.node_preflight import preflight

log = logging.getLogger(__name__)

SETTLED = 10.0  # seconds after its start a session has opened what it needs
PAUSE = 5.0


class NodePreflights:
    """One session at a time, in a thread of its own: a file server that hangs stops only this."""

    def __init__(
        self,
        config: Callable[[], Config],
        sessions: NodeSessions,
        store: NodeStore,
        clock: Clock,
    ) -> None:
        self._config = config
        self._sessions = sessions
        self._store = store
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "preflight")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PAUSE)
            for session in list(self._sessions.sessions.values()):
                if self.due(session):
                    await self._look(session)

    def due(self, session: NodeSession) -> bool:
        if session.living is not Living.RUNNING or session.job_id in self._sessions.busy:
            return False
        now = self._clock.now()
        if session.looked > now:  # the clock was put back
            return True
        if not session.looked:
            return not 0 <= now - session.started < SETTLED
        return now - session.looked >= self._config().agent.preflight

    async def _look(self, session: NodeSession) -> None:
        before, loop = session.blockers, asyncio.get_running_loop()
        try:
            await loop.run_in_executor(
                self._thread,
                preflight,
                session,
                self._sessions.tree(session),
                self._store,
                self._clock,
            )
        except Exception:
            # One session's oddity must not take the others' look away; it is tried again later.
            log.exception("preflight of job=%s", session.job_id)
            session.looked = self._clock.now()
            return
        await loop.run_in_executor(self._thread, memory.give_back)
        if session.blockers != before:
            names = "; ".join(map(str, session.blockers)) or "nothing any more"
            log.info("job=%s can't be hibernated for: %s", session.job_id, names)
            self._sessions.changed.set()
