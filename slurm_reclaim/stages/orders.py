"""Orders waiting for their agents. They come from the journal and go back to it, so that this
book may be lost: recovery writes it anew from the intents without outcome."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection
from typing import Any

from slurm_reclaim.model.order import Order, Verb
from slurm_reclaim.model.session import Session


def order_for(session: Session, verb: Verb, reason: str, **more: Any) -> Order:
    """An order about the session's incarnation as it is; `more` are fields of Order."""
    return Order(
        **{"id": secrets.token_hex(8), **more},
        verb=verb,
        session=str(session.id),
        job_id=session.id.job_id,
        restarts=session.restarts,
        reason=reason,
    )


class OrderBook:
    """Found by node and by session without a look at all of them: one policy may have every idle
    session of the cluster looked at in the same minute."""

    def __init__(self) -> None:
        self._orders: dict[str, tuple[str, int, Order]] = {}
        self._by_node: dict[str, dict[str, Order]] = {}
        self._by_session: dict[str, dict[str, Order]] = {}
        # of those who wait now
        self._news: dict[str, list[asyncio.Event]] = {}

    def give(self, node: str, intent: int, order: Order) -> None:
        """`intent`: the journal's number of the intent this order carries out."""
        self.take_back(order.id)
        self._orders[order.id] = (node, intent, order)
        self._by_node.setdefault(node, {})[order.id] = order
        self._by_session.setdefault(order.session, {})[order.id] = order
        for event in self._news.get(node, ()):
            event.set()

    def take_back(self, order_id: str) -> int | None:
        """Remove it; the number of its intent, None where there is no such order."""
        found = self._orders.pop(order_id, None)
        if found is None:
            return None
        node, intent, order = found
        _take_out(self._by_node, node, order_id)
        _take_out(self._by_session, order.session, order_id)
        return intent

    def knows(self, order_id: str) -> bool:
        return order_id in self._orders

    def of_session(self, session: str) -> Order | None:
        """The oldest."""
        return next(iter(self._by_session.get(session, {}).values()), None)

    def of_node(self, node: str, known: Collection[str] = ()) -> list[Order]:
        return [o for o in self._by_node.get(node, {}).values() if o.id not in known]

    async def wait(self, node: str, known: Collection[str], seconds: float) -> list[Order]:
        """Orders of `node` that are not in `known`: at once if there are, else as soon as there
        is one, else none after `seconds`."""
        deadline = asyncio.get_running_loop().time() + seconds
        event = asyncio.Event()
        self._news.setdefault(node, []).append(event)
        try:
            while not (orders := self.of_node(node, known)):
                event.clear()
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0:
                    return []
                try:
                    await asyncio.wait_for(event.wait(), left)
                except asyncio.TimeoutError:
                    return []
            return orders
        finally:
            waiting = self._news[node]
            waiting.remove(event)
            if not waiting:
                del self._news[node]


def _take_out(index: dict[str, dict[str, Order]], key: str, order_id: str) -> None:
    orders = index[key]
    del orders[order_id]
    if not orders:
        del index[key]
