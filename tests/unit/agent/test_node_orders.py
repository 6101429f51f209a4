"""Orders on a node: `notify` never behind long work; none too early, none to another life."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.adapters.store.records import SessionRecords
from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon import node_orders
from slurm_reclaim.daemon.node_orders import MOST_AT_ONCE, NodeOrders
from slurm_reclaim.daemon.node_samples import NodeSamples
from slurm_reclaim.daemon.node_sessions import NodeSessions
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living, Order, Outcome, Result, Verb
from tests.parts.store.stored import new_store


class Clock:
    def now(self) -> float:
        return time.time()


@pytest.fixture
def orders(tmp_path: Path) -> NodeOrders:
    sessions = NodeSessions(Config(), "n1", SessionRecords(tmp_path), NodeSamples(Config))
    sessions.sessions[7] = NodeSession(
        7, 2001, 2001, 1, "fresh", Living.RUNNING, init=os.getpid(),
        init_start=tree.start_time(os.getpid()),
    )  # fmt: skip
    store = new_store(tmp_path)
    return NodeOrders(sessions, None, store, Collection(store, "n1"), Clock())  # type: ignore[arg-type]  # not asked


async def until(seen: Callable[[], object], longest: float = 5.0) -> None:
    deadline = time.monotonic() + longest
    while not seen():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.001)


async def carried_out(orders: NodeOrders, **changes: Any) -> Result:
    values = {"id": "o", "verb": Verb.NOTIFY, "session": "c/7", "job_id": 7, "restarts": 1,
              "reason": "warning", "text": "soon\n"}  # fmt: skip
    orders.take(Order(**{**values, **changes}))
    await until(lambda: "o" in orders.results)
    return orders.results["o"]


async def test_without_a_terminal_it_is_done_and_counts_none(orders: NodeOrders) -> None:
    result = await carried_out(orders)  # this process has no devpts of its own
    assert (result.outcome, result.count, result.reason) == (Outcome.DONE, 0, "no terminal")


async def test_it_does_not_wait_for_long_work(orders: NodeOrders) -> None:
    for _ in range(MOST_AT_ONCE):
        await orders._room.acquire()
    assert (await carried_out(orders)).outcome is Outcome.DONE


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda o: o._sessions.busy.add(7), "the session is being worked on"),
        (lambda o: setattr(o._sessions.get(7), "living", Living.DUMPING),
         "the session is being worked on"),
        (lambda o: setattr(o._sessions.get(7), "restarts", 2),
         "it was meant for another incarnation"),
        (lambda o: setattr(o._sessions.get(7), "init_start", 1), "the session has ended"),
        (lambda o: o._sessions.sessions.clear(), "no such session on this node"),
    ],
)  # fmt: skip
async def test_refused(orders: NodeOrders, spoil: Any, reason: str) -> None:
    spoil(orders)
    result = await carried_out(orders)
    assert (result.outcome, result.reason, result.count) == (Outcome.REFUSED, reason, 0)


async def test_an_order_that_comes_back_waits_for_the_recovery(
    orders: NodeOrders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent was killed in the middle of it, and what came of it is not known yet."""
    monkeypatch.setattr(node_orders, "RECOVERY_LOOKS", 0.001)
    session = orders._sessions.get(7)
    assert session is not None
    session.living = Living.DUMPING
    order = Order("again", Verb.HIBERNATE, "c/7.2001.1000", 7, 1, "asked by alice")
    orders.take(order)
    looks = 0
    get = orders._sessions.get

    def counted(job_id: int) -> NodeSession | None:
        nonlocal looks
        looks += 1
        return get(job_id)

    monkeypatch.setattr(orders._sessions, "get", counted)
    await until(lambda: looks > 3 or orders.results)
    assert not orders.results, "refused, though it may have been carried out"
    session.living, session.checkpoint = Living.COMMITTED, 1
    await until(lambda: orders.results)
    assert orders.results["again"].outcome is Outcome.DONE


def begun(orders: NodeOrders) -> list[Order]:
    """The long work that is begun, which is not done here."""
    found: list[Order] = []

    async def note(order: Order, session: NodeSession) -> Result:
        found.append(order)
        return orders._result(order, Outcome.DONE, "begun")

    orders._long_work = note  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda o: None, "it waited 0 s for others; whether it is still idle is not known"),
        (lambda o: setattr(o._sessions.get(7), "cancelled", "kept"), "kept"),
        (lambda o: o._sessions.sessions.clear(), "the session has ended"),
    ],
)
async def test_an_idle_session_that_waited_for_others_is_not_hibernated(
    orders: NodeOrders, monkeypatch: pytest.MonkeyPatch, spoil: Any, reason: str
) -> None:
    monkeypatch.setattr(node_orders, "LONGEST_WAIT", 0.01)
    work = begun(orders)
    for _ in range(MOST_AT_ONCE):
        await orders._room.acquire()
    asyncio.get_running_loop().call_later(0.03, orders._room.release)
    asyncio.get_running_loop().call_later(0.02, spoil, orders)
    result = await carried_out(orders, verb=Verb.HIBERNATE, cancel_on_activity=True)
    assert (result.outcome, result.reason, work) == (Outcome.CANCELLED, reason, [])


@pytest.fixture
def hangs(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Whoever looks at a session waits for this: its owner's file server is gone."""
    there = threading.Event()

    def look(session: NodeSession, *_: object) -> tuple[()]:
        assert there.wait(20)
        return ()

    monkeypatch.setattr(node_orders, "preflight", look)
    monkeypatch.setattr(node_orders.node_hibernate, "hibernate", lambda _, s, *__: look(s))
    yield there
    there.set()


async def test_a_session_at_which_nobody_can_look_takes_no_thread_from_others(
    orders: NodeOrders, hangs: threading.Event
) -> None:
    """One that hung for each warning in time kept jobs from starting on its node."""
    for number in range(40):
        values = {"session": "c/7.2001.1000", "job_id": 7, "restarts": 1, "reason": ""}
        orders.take(Order(f"o{number}", Verb.PREFLIGHT, **values))  # type: ignore[arg-type]
    await until(lambda: len(orders.results) == 39)
    assert {r.outcome for r in orders.results.values()} == {Outcome.REFUSED}
    assert "hangs" in orders.results["o39"].reason
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "goes on"), 5) == "goes on"
    hangs.set()
    await until(lambda: len(orders.results) == 40)
    assert orders.results["o0"].outcome is Outcome.DONE


async def test_hibernations_that_hang_give_their_turn_back(
    orders: NodeOrders, hangs: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_orders, "LONGEST_LOOK", 0.05)
    for number in range(MOST_AT_ONCE):
        job = 70 + number
        orders._sessions.sessions[job] = replace(orders._sessions.sessions[7], job_id=job)
        name = f"c/{job}.2001.1000"
        orders.take(Order(f"o{job}", Verb.HIBERNATE, name, job, 1, "asked by bob"))
    await until(lambda: len(orders._sessions.busy) == MOST_AT_ONCE)
    await asyncio.wait_for(orders._room.acquire(), 5)
    orders._room.release()
    assert orders._sessions.busy, "nobody else may begin with them"


async def test_a_dump_that_takes_long_keeps_its_turn(
    orders: NodeOrders, hangs: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_orders, "LONGEST_LOOK", 0.05)
    session = orders._sessions.sessions[7]
    async with orders._turn(session):
        session.living = Living.DUMPING
        await asyncio.sleep(0.2)
        assert orders._room._value == MOST_AT_ONCE - 1
    assert orders._room._value == MOST_AT_ONCE


async def test_what_its_owner_asked_for_waits(
    orders: NodeOrders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_orders, "LONGEST_WAIT", 0.0)
    begun(orders)
    assert (await carried_out(orders, verb=Verb.HIBERNATE)).outcome is Outcome.DONE


@pytest.mark.parametrize("at_work", [True, False])
def test_the_end_of_a_job_deletes_no_checkpoint_that_is_being_committed(
    orders: NodeOrders, tmp_path: Path, at_work: bool
) -> None:
    """Its directory may be renamed into place while it is emptied: committed, and empty."""
    sessions, session = orders._sessions, orders._sessions.sessions[7]
    staged = tmp_path / "store" / ".staging-1"
    staged.mkdir(parents=True)
    (staged / "index").touch()
    session.staged = str(staged)
    if at_work:
        sessions.busy.add(7)
    others = set(threading.enumerate())
    sessions.forget(session, "the job ended")
    for deleting in set(threading.enumerate()) - others:
        deleting.join()
    assert staged.exists() == at_work
