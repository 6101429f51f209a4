"""The controller's loop: observe, then let every session take its next step.

One job's trouble is that job's alone: each session steps in a task of its own, one at a time, and
what goes wrong there is logged and tried again in the next cycle. `Unavailable` changes no state.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterable

from slurm_reclaim.errors import ReclaimError, StoreUnavailable, Unavailable
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.stages import observe, room, stranded, tell
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.step import step

log = logging.getLogger(__name__)

# Slurm commands at once: slurmctld has other callers, too.
AT_ONCE = 8
EVIDENCE_EVERY = 60.0  # seconds
# Objects made, less those freed, between two looks for cycles: Python's 700 have it walk through
# the report of every node again and again, which is most of the time that decoding them takes.
COLLECT_AFTER = 50_000


def collect_seldom() -> None:
    """To be called once, when all that stays is there. Nearly all that a controller makes goes
    without the collector, as soon as nobody refers to it; cycles come with exceptions."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])


class Controller:
    def __init__(self, desk: Desk) -> None:
        """`desk`: recovered."""
        self.desk = desk
        self._tasks: dict[SessionId, asyncio.Task[None]] = {}
        self._again: set[SessionId] = set()
        self._room = asyncio.Semaphore(AT_ONCE)
        self._kept = 0.0
        self._evidence = dict(desk.evidence)  # as the journal has it
        self._complaints: set[str] = set()
        self._troubles: dict[SessionId, str] = {}

    async def cycle(self) -> None:
        """Every interval: one query, then a step of every session."""
        try:
            await observe.ask_slurm(self.desk)
        except Unavailable as error:
            self._complain("Slurm", error.message)
            return
        self._complain("Slurm", "")
        try:
            observe.adopt(self.desk)
            room.watch(self.desk)
            stranded.watch(self.desk)
            tell.record(self.desk)
            await self._keep_evidence()
        except StoreUnavailable as error:
            self._complain("the journal", error.message)
            return
        self._complain("the journal", "")
        for id in self._troubles.keys() - self.desk.sessions.keys():
            del self._troubles[id]  # it ended while nothing of ours was at work on it
        self.wake(list(self.desk.sessions))

    async def _keep_evidence(self) -> None:
        """Now and then, so that idle clocks go on after a restart. What changed, and beside the
        loop: of ten thousand sessions it takes a while."""
        now = self.desk.clock.now()
        if now - self._kept < EVIDENCE_EVERY:
            return
        self._kept = now
        before, known = self._evidence, dict(self.desk.evidence)
        changed = {id: evidence for id, evidence in known.items() if before.get(id) is not evidence}
        gone = before.keys() - known.keys()
        if changed or gone:
            await asyncio.to_thread(self.desk.journal.keep_evidence, changed, gone)
        self._evidence = known

    def wake(self, ids: Iterable[SessionId]) -> None:
        """Let these sessions step now, for something happened to them."""
        for id in ids:
            if id in self._tasks:
                self._again.add(id)
            else:
                self._tasks[id] = asyncio.get_running_loop().create_task(self._walk(id))

    def wake_node(self, node: str) -> None:
        """An agent has reported: the sessions there, and those it has orders for, may go on."""
        heard = self.desk.view.agents.get(node)
        told = heard.report.sessions if heard is not None else ()
        sessions = self.desk.sessions
        found = {s.id for one in told for s in sessions.of_job(one.job_id)}
        self.wake(found | {s.id for s in sessions.of_node(node)})

    async def settle(self) -> None:
        """Until every step that was begun has ended."""
        while self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def stop(self) -> None:
        """Steps under way are given up where they stand; the journal knows how far they came."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _walk(self, id: SessionId) -> None:
        """Steps until nothing changes any more."""
        try:
            while await self._safely(id) or id in self._again:
                self._again.discard(id)
        finally:
            del self._tasks[id]

    async def _safely(self, id: SessionId) -> bool:
        try:
            async with self._room:
                moved = await step(self.desk, id)
            self._troubles.pop(id, None)
            return moved
        except Unavailable as error:
            self._trouble(id, error.message)
        except ReclaimError as error:
            self._trouble(id, f"{type(error).__name__}: {error.message}")
        except Exception as error:
            log.exception("session=%s: internal error", id)
            self._trouble(id, f"internal error: {error}")
        return False

    def _trouble(self, id: SessionId, what: str) -> None:
        """Said once, not every cycle."""
        if self._troubles.get(id) == what:
            return
        self._troubles[id] = what
        session = self.desk.sessions.get(id)
        node = session.node if session is not None else ""
        log.warning("%s; tried again session=%s job=%s node=%s", what, id, id.job_id, node or "-")

    def _complain(self, of: str, problem: str) -> None:
        """Said once, not every cycle."""
        if problem and of not in self._complaints:
            self._complaints.add(of)
            log.warning("%s does not answer, so nothing is decided: %s", of, problem)
        elif not problem and of in self._complaints:
            self._complaints.remove(of)
            log.info("%s answers again", of)
