"""Orders about the store, carried out by whichever agent the controller asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from slurm_reclaim.adapters import memory
from slurm_reclaim.adapters.store.stock import Stock
from slurm_reclaim.adapters.transport.wire import encode
from slurm_reclaim.daemon.node_sessions import NodeSessions
from slurm_reclaim.errors import (
    BadRequest,
    IntegrityError,
    OperationFailed,
    Refused,
    StoreUnavailable,
)
from slurm_reclaim.model.catalogue import StoreAnswer, StoreTask
from slurm_reclaim.model.ids import SessionId, parse_session_id
from slurm_reclaim.model.order import Living, Order, Outcome, Result, Verb
from slurm_reclaim.ports import Clock

log = logging.getLogger(__name__)

# Of a report, whose refusal would make the agent a silent one.
MOST_BYTES = 8 << 20
MOST_NAMES = 1000


class NodeStoreOrders:
    """In threads of its own: reading a checkpoint again takes long, and those of the loop are for
    dumps. One for looking and deleting, one for reading."""

    def __init__(self, sessions: NodeSessions, stock: Stock, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock
        self._stock = stock
        self._quick = ThreadPoolExecutor(1, "store")
        self._long = ThreadPoolExecutor(1, "verify")

    async def carry_out(self, order: Order) -> Result:
        """Raises nothing of the store's."""
        task = order.store or StoreTask()
        work: dict[Verb, Callable[[StoreTask], StoreAnswer]] = {
            Verb.CATALOGUE: self._catalogue,
            Verb.PARTS: self._parts,
            Verb.VERIFY: self._verify,
            Verb.EXPIRE: self._expire,
        }
        thread = self._long if order.verb is Verb.VERIFY else self._quick
        loop = asyncio.get_running_loop()
        try:
            if order.verb is Verb.EXPIRE:
                # In the loop, where sessions come and go.
                self._refuse_living(task)
            answer = await loop.run_in_executor(thread, work[order.verb], task)
            await loop.run_in_executor(thread, memory.give_back)
            _see_that_it_fits(answer)
        except StoreUnavailable as error:
            return self._result(order, Outcome.FAILED, error.message, StoreAnswer(away=True))
        except Refused as refusal:
            return self._result(order, Outcome.REFUSED, refusal.message)
        except (IntegrityError, OperationFailed) as error:
            return self._result(order, Outcome.FAILED, error.message)
        return self._result(order, Outcome.DONE, order.reason, answer)

    def _catalogue(self, task: StoreTask) -> StoreAnswer:
        sessions, after = self._stock.catalogue(task.after)
        return StoreAnswer(sessions=tuple(sessions), after=after)

    def _parts(self, task: StoreTask) -> StoreAnswer:
        (restarts,) = task.restarts
        return StoreAnswer(parts=tuple(self._stock.parts(self._id(task), restarts)))

    def _verify(self, task: StoreTask) -> StoreAnswer:
        (restarts,) = task.restarts
        differs = self._stock.verify(self._id(task), restarts)
        more = [f"and {len(differs) - MOST_NAMES} more"] if len(differs) > MOST_NAMES else []
        return StoreAnswer(differs=(*differs[:MOST_NAMES], *more))

    def _expire(self, task: StoreTask) -> StoreAnswer:
        freed = self._stock.expire(self._id(task), task.restarts, ended=task.ended)
        log.info("expired session=%s restarts=%s: %d bytes", task.session, task.restarts, freed)
        return StoreAnswer(freed=freed, deleted=task.restarts)

    def _refuse_living(self, task: StoreTask) -> None:
        """S6, looked at once more where it can be seen. Raises Refused."""
        for session in self._sessions.sessions.values():
            if session.session != task.session:
                continue
            if task.ended:
                raise Refused(f"{task.session} has not ended: it is on {self._sessions.node}")
            if session.living is not Living.RUNNING:
                raise Refused(f"{task.session} is {session.living.value} on {self._sessions.node}")

    def _id(self, task: StoreTask) -> SessionId:
        id = parse_session_id(task.session)
        if id.cluster != self._stock.cluster:
            raise BadRequest(f"{task.session} is of another cluster")
        return id

    def _result(
        self, order: Order, outcome: Outcome, reason: str, answer: StoreAnswer | None = None
    ) -> Result:
        return Result(
            order=order.id,
            session=order.session,
            restarts=order.restarts,
            verb=order.verb,
            outcome=outcome,
            reason=reason,
            at=self._clock.now(),
            store=answer or StoreAnswer(),
        )


def _see_that_it_fits(answer: StoreAnswer) -> None:
    """Raises OperationFailed for one that no report could carry."""
    if (size := len(encode(answer))) > MOST_BYTES:
        raise OperationFailed(f"the answer is too large for a report: {size} bytes")
