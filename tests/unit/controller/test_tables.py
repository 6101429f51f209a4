"""Nothing is kept of a session that has ended: the controller runs for months."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sized
from typing import Any

import pytest

from slurm_reclaim.errors import RequeueFailed
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Order, Verb
from slurm_reclaim.stages.orders import OrderBook
from tests.unit.controller.life import Life
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World

# Of the cluster and of lately, not of sessions.
OTHER = {"history"}


def tables(stand: Stand) -> dict[str, int]:
    """Everything of the controller that has a length and is not empty."""
    gc.collect()
    desk, found = stand.desk, {}
    for owner in (desk, stand.controller, desk.orders):
        for name, value in vars(owner).items():
            if isinstance(value, Sized) and len(value) and not isinstance(value, str):
                found[name] = len(value)
    return {name: many for name, many in found.items() if name not in OTHER}


async def ended(one: Any, stand: Stand, how: str = "COMPLETED") -> None:
    stand.world.finish(7, how)
    await stand.turns(3)
    session = stand.session()
    assert session is not None
    assert session.state is State.ENDED


async def test_a_warned_session_that_ends(life: Callable[..., Life]) -> None:
    one = await life().warned()
    assert tables(one.stand)
    await ended(one, one.stand)
    assert tables(one.stand) == {}


async def test_a_session_that_ends_while_its_owner_is_told(life: Callable[..., Life]) -> None:
    one = await life().start()
    never = asyncio.Event()

    async def deliver(notice: object, only: object) -> list[Any]:
        await never.wait()
        return []

    one.stand.post.deliver = deliver  # type: ignore[method-assign]
    await one.stand.until(State.IDLE, 100)
    await one.stand.turns(2)
    assert "tellings" in tables(one.stand)
    await ended(one, one.stand)
    assert tables(one.stand) == {}
    never.set()


async def test_a_hibernated_session_that_is_cancelled(world: World, stand: Stand) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    await ended(stand, stand, "CANCELLED")
    assert tables(stand) == {}


async def test_a_session_in_trouble_that_ends(
    world: World, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trouble is with Slurm, and the end is seen when nothing steps."""
    await stand.hibernate()

    async def requeue(name: str, *, special_exit: bool) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(world, "requeue_held", requeue)
    await stand.turns(3)
    assert "_troubles" in tables(stand)
    session = stand.session()
    assert session is not None
    stand.desk.sessions.pop(session.id)  # as a request does that finds it ended
    world.agents["n1"].trees.clear()
    world.finish(7)
    await stand.turn()
    assert "_troubles" not in tables(stand)


async def test_nobody_is_told_where_there_is_nobody_to_tell(life: Callable[..., Life]) -> None:
    one = await life().warned()
    one.stand.desk.notifier = None
    one.node.readings["cpu"] = one.node.readings["cpu"].__class__(2.0)
    await one.stand.until(State.ACTIVE)
    await one.stand.turns(2)
    assert "tellings" not in tables(one.stand)


async def test_a_refused_release_of_a_session_that_ended_meanwhile(
    world: World, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stand.hibernate()
    session = await stand.until(State.HIBERNATED)

    async def release(name: str) -> None:
        stand.desk.sessions.pop(session.id)
        stand.desk.touched.clear()
        raise RequeueFailed("Invalid job id specified")

    monkeypatch.setattr(world, "release", release)
    with pytest.raises(RequeueFailed):
        await stand.restore()
    assert stand.desk.touched == {}


async def test_who_waits_for_orders_is_forgotten_when_they_leave() -> None:
    book = OrderBook()
    assert await book.wait("n1", (), 0.0) == []
    waiting = [asyncio.create_task(book.wait("n2", (), 60.0)) for _ in range(2)]
    gone = asyncio.create_task(book.wait("n3", (), 60.0))
    await asyncio.sleep(0)
    gone.cancel()
    order = Order("o", Verb.HIBERNATE, "s", 7, 0, "asked")
    book.give("n2", 1, order)
    assert await asyncio.gather(*waiting) == [[order], [order]]
    await asyncio.gather(gone, return_exceptions=True)
    assert book._news == {}


async def test_turns_by_one_lock(stand: Stand) -> None:
    """Whoever asks for a session's lock while somebody has it or waits gets the same one."""
    session = stand.session()
    assert session is not None
    order = []

    async def work(number: int) -> None:
        async with stand.desk.lock(session.id):
            gc.collect()
            order.append(number)
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(work(number) for number in range(3)))
    assert order == [0, 0, 1, 1, 2, 2]
