"""An order that comes back for a session whose processes are gone: the store knows whether it was
saved."""

from __future__ import annotations

import asyncio
from pathlib import Path

from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.adapters.store.records import SessionRecords
from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon.node_orders import NodeOrders
from slurm_reclaim.daemon.node_samples import NodeSamples
from slurm_reclaim.daemon.node_sessions import NodeSessions
from slurm_reclaim.model.order import Order, Outcome, Result, Verb
from tests.parts.store.stages import hibernated
from tests.parts.store.world import ID, World


async def answer(world: World, folder: Path, restarts: int, order: str = "o1") -> Result:
    sessions = NodeSessions(Config(), "n1", SessionRecords(folder), NodeSamples(Config))
    stock = Collection(world.store.real, "n1")
    orders = NodeOrders(sessions, None, world.store.real, stock, world)  # type: ignore[arg-type]
    orders.take(Order(order, Verb.HIBERNATE, str(ID), ID.job_id, restarts, "asked"))
    while order not in orders.results:
        await asyncio.sleep(0.01)
    return orders.results[order]


async def test_saved_by_an_agent_that_could_not_say_so(tmp_path: Path) -> None:
    result = await answer(hibernated(tmp_path), tmp_path / "records", 0)
    assert (result.outcome, result.reason) == (Outcome.DONE, "asked")
    assert result.bytes > 0
    assert result.needs is not None


async def test_not_saved_in_this_life(tmp_path: Path) -> None:
    result = await answer(hibernated(tmp_path), tmp_path / "records", 1)
    assert (result.outcome, result.reason) == (Outcome.REFUSED, "no such session on this node")


async def test_saved_by_an_earlier_order_and_restored_in_place(tmp_path: Path) -> None:
    """Else a session that has ended would be brought back as it was once."""
    result = await answer(hibernated(tmp_path), tmp_path / "records", 0, "another")
    assert (result.outcome, result.reason) == (Outcome.REFUSED, "no such session on this node")
