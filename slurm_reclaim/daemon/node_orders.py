"""Carries out the controller's orders, each once, and keeps the results until acknowledged."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from slurm_reclaim.adapters.proc import tree, wall
from slurm_reclaim.adapters.store.places import AnyStore
from slurm_reclaim.adapters.store.stock import Stock
from slurm_reclaim.daemon.aside import in_thread
from slurm_reclaim.daemon.node_sessions import NodeSessions
from slurm_reclaim.daemon.node_starts import NodeStarts
from slurm_reclaim.daemon.node_store import NodeStoreOrders
from slurm_reclaim.errors import OperationFailed, ReclaimError
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.ids import parse_session_id
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import STORE_VERBS, Living, Order, Outcome, Result, Verb
from slurm_reclaim.ports import Clock
from slurm_reclaim.stages import node_hibernate
from slurm_reclaim.stages.node_preflight import preflight

log = logging.getLogger(__name__)

# Dumps at once on one node: more would only share the same disk and keep each tree frozen longer.
MOST_AT_ONCE = 2
# An idle session that has to wait for others for longer than this is not hibernated: only its
# terminals and kernels are looked at again, not all that made it idle.
LONGEST_WAIT = 30.0  # seconds
# A hibernation that has frozen nothing yet after this long waits for something of its session that
# hangs, and keeps no other from its turn.
LONGEST_LOOK = 120.0  # seconds
# How often it is looked whether the recovery is through with a session.
RECOVERY_LOOKS = 0.1  # seconds


class NodeOrders:
    def __init__(
        self,
        sessions: NodeSessions,
        starts: NodeStarts,
        store: AnyStore,
        stock: Stock,
        clock: Clock,
    ) -> None:
        self._sessions = sessions
        self._starts = starts
        self._store = store
        self._clock = clock
        self._stored = NodeStoreOrders(sessions, stock, clock)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._at_work: set[int] = set()
        self._looked_at: set[int] = set()
        self.results: dict[str, Result] = {}

    def known(self) -> list[str]:
        """Orders that need not be given again."""
        return [*self._tasks, *self.results]

    def take(self, order: Order) -> None:
        if order.id in self._tasks or order.id in self.results:
            return
        session = self._sessions.get(order.job_id)
        if session is not None and order.verb is Verb.HIBERNATE:
            session.cancelled = ""  # what was said of an earlier one
        task = asyncio.get_running_loop().create_task(self._carry_out(order))
        self._tasks[order.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(order.id, None))

    async def _carry_out(self, order: Order) -> None:
        log.info("order %s %s job=%s: %s", order.id, order.verb.value, order.job_id, order.reason)
        try:
            result = await self._do(order)
        except ReclaimError as error:
            result = self._result(order, Outcome.FAILED, error.message)
        except Exception as error:
            log.exception("order %s", order.id)
            result = self._result(order, Outcome.FAILED, f"internal error: {error}")
        log.info("order %s: %s %s", order.id, result.outcome.value, result.reason)
        self.results[order.id] = result
        self._sessions.changed.set()

    async def _do(self, order: Order) -> Result:
        if order.verb in STORE_VERBS:
            return await self._stored.carry_out(order)
        session = self._sessions.get(order.job_id)
        if session is None:
            return await asyncio.to_thread(self._without_session, order)
        if order.verb is Verb.PREFLIGHT:
            return await self._look(order, session)
        if order.verb is Verb.CANCEL:
            # Read right before the commit (node_hibernate); afterwards it has no meaning.
            session.cancelled = order.reason
            return self._result(order, Outcome.DONE, order.reason)
        if order.verb is Verb.NOTIFY:
            return await self._notify(order, session)
        await self._until_recovered(session)
        asked = time.monotonic()
        async with self._turn(session):
            if why := self._overtaken(order, session, time.monotonic() - asked):
                return self._result(order, Outcome.CANCELLED, why)
            if session.job_id in self._sessions.busy:
                return self._result(order, Outcome.REFUSED, "the session is being worked on")
            self._sessions.busy.add(session.job_id)
            self._at_work.add(session.job_id)
            try:
                return await self._long_work(order, session)
            finally:
                self._at_work.discard(session.job_id)
                self._sessions.busy.discard(session.job_id)
                if session.living in (Living.DUMPING, Living.RESTORING):
                    # It could not even be undone: that is tried again.
                    self._starts.look_after(session)

    async def _look(self, order: Order, session: NodeSession) -> Result:
        """One at a time of each session: what hangs now would hang again."""
        if session.job_id in self._looked_at:
            why = "an earlier look at it has not come back: something that it has open hangs"
            return self._result(order, Outcome.REFUSED, why)
        self._looked_at.add(session.job_id)
        try:
            tree = self._sessions.tree(session)
            found = await in_thread(preflight, session, tree, self._store, self._clock)
        finally:
            self._looked_at.discard(session.job_id)
        return self._result(order, Outcome.DONE, "", found)

    @asynccontextmanager
    async def _turn(self, session: NodeSession) -> AsyncIterator[None]:
        """Long work takes turns. Whoever does not get as far as to freeze anything gives its turn
        back, and waits on without."""
        await self._room.acquire()
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                self._room.release()

        def seen() -> None:
            if session.living is Living.RUNNING:
                log.warning("job=%s: something of it hangs; others go on", session.job_id)
                give_back()

        timer = asyncio.get_running_loop().call_later(LONGEST_LOOK, seen)
        try:
            yield
        finally:
            timer.cancel()
            give_back()

    def _without_session(self, order: Order) -> Result:
        """Its job has ended. It may have been saved before, by an agent that could not say so."""
        result = self._result(order, Outcome.REFUSED, "no such session on this node")
        if order.verb is not Verb.HIBERNATE:
            return result
        id = parse_session_id(order.session)
        if order.restarts not in self._store.committed(id):
            return result
        manifest = self._store.read(id, order.restarts)
        if manifest.order != order.id:
            return result
        return replace(
            result,
            outcome=Outcome.DONE,
            reason=order.reason,
            bytes=manifest.size,
            needs=manifest.needs,
        )

    async def _until_recovered(self, session: NodeSession) -> None:
        """What an earlier agent left half done is looked at first (node_recovery.py): an order that
        came back would else be refused, though it may have been carried out all but the answer."""
        while (
            session.living in (Living.DUMPING, Living.RESTORING)
            and session.job_id not in self._at_work
            and self._sessions.get(session.job_id) is session
        ):
            await asyncio.sleep(RECOVERY_LOOKS)

    def _overtaken(self, order: Order, session: NodeSession, waited: float) -> str:
        """Why a hibernation is not begun any more that had to wait for others; "" where it is."""
        if order.verb is not Verb.HIBERNATE or session.living is not Living.RUNNING:
            return ""
        if self._sessions.get(order.job_id) is not session:
            return "the session has ended"
        if session.cancelled:
            return session.cancelled
        if order.cancel_on_activity and waited > LONGEST_WAIT:
            return f"it waited {waited:.0f} s for others; whether it is still idle is not known"
        return ""

    async def _notify(self, order: Order, session: NodeSession) -> Result:
        """Waits for nobody: a warning must not queue behind other sessions' dumps."""
        if order.restarts != session.restarts:
            return self._result(order, Outcome.REFUSED, "it was meant for another incarnation")
        if session.job_id in self._sessions.busy or session.living is not Living.RUNNING:
            return self._result(order, Outcome.REFUSED, "the session is being worked on")
        if not tree.same_process(session.init, session.init_start):
            return self._result(order, Outcome.REFUSED, "the session has ended")
        count = await in_thread(wall.write, session.init, order.text)
        reason = "" if count else "no terminal"
        return replace(self._result(order, Outcome.DONE, reason), count=count)

    async def _long_work(self, order: Order, session: NodeSession) -> Result:
        if order.verb is Verb.HIBERNATE:
            await in_thread(self._sessions.samples.settle, session.job_id)
            return await in_thread(
                node_hibernate.hibernate,
                order,
                session,
                self._sessions.tree(session),
                self._sessions.link(session),
                self._store,
                self._clock,
                self._sessions.save,
            )
        if order.verb is Verb.RESTORE_IN_PLACE:
            return await self._in_place(order, session)
        await in_thread(self._sessions.link(session).end, 0)
        return self._result(order, Outcome.DONE, order.reason)

    async def _in_place(self, order: Order, session: NodeSession) -> Result:
        """The requeue was refused: the same allocation gets its session back."""
        if session.living is Living.RUNNING and session.restored:
            return self._result(order, Outcome.DONE, "already restored")
        if session.living not in (Living.COMMITTED, Living.RESTORE_FAILED):
            raise OperationFailed(f"the session is {session.living.value}")
        if await self._starts.bring_back(session, order.session, order.restarts):
            return self._result(order, Outcome.DONE, order.reason)
        return self._result(order, Outcome.FAILED, session.reason)

    def _result(
        self, order: Order, outcome: Outcome, reason: str, blockers: tuple[Blocker, ...] = ()
    ) -> Result:
        return Result(
            order=order.id,
            session=order.session,
            restarts=order.restarts,
            verb=order.verb,
            outcome=outcome,
            reason=reason,
            blockers=blockers,
            at=self._clock.now(),
        )
