"""What thousands of sessions ask at once takes no time that grows with their square."""

from __future__ import annotations

import time
from dataclasses import replace

from slurm_reclaim.config.schema import Limits
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import NodeFacts, Order, Report, Verb
from slurm_reclaim.model.session import Session, Warned
from slurm_reclaim.stages import room
from slurm_reclaim.stages.orders import OrderBook
from tests.unit.controller.life import config
from tests.unit.controller.stand import Stand

MANY = 4000
BOUND = 2.0  # seconds of CPU, of which it takes a tenth


def waiting(stand: Stand, limits: Limits) -> list[Session]:
    """Warned sessions, two on a node, whose deadlines have passed one after the other."""
    desk = stand.desk
    desk.settings = replace(desk.settings, config=config(limits=limits))
    now, found = stand.world.now(), []
    for number in range(MANY):
        node = f"n{number // 2}"
        if number % 2 == 0:
            desk.view.heard(Report(node, "boot", now, NodeFacts()), now)
        warned = Warned("w", since=now - 900, deadline=now - 600 + number / 1000)
        id = SessionId("lab", 100 + number, 2001, 1)
        one = Session(id, "alice", "nb", "", "gpu", "", State.WARNED, "", now, node, warned=warned)
        desk.sessions[id] = one
        found.append(one)
    return found


def test_who_waits_for_room(stand: Stand) -> None:
    every = waiting(stand, Limits(per_node=2, per_store=8, per_hour=1000))
    began = time.process_time()
    free = [one for one in every if not room.full(stand.desk, one)]
    assert time.process_time() - began < BOUND
    # Whoever was due first goes first.
    assert free == every[:8]


def test_who_waits_on_a_node(stand: Stand) -> None:
    every = waiting(stand, Limits(per_node=1, per_store=10_000, per_hour=10_000))[:20]
    assert [room.full(stand.desk, one) for one in every[:2]] == [
        "", "1 hibernations at work on the node (limits.per_node)",
    ]  # fmt: skip
    stand.desk.sessions[every[0].id] = replace(every[0], state=State.HIBERNATING)
    assert "on the node" in room.full(stand.desk, every[1])


def order(number: int) -> Order:
    return Order(f"o{number}", Verb.PREFLIGHT, f"s{number}", number, 0, "")


def test_an_order_for_each_session() -> None:
    book = OrderBook()
    began = time.process_time()
    for number in range(MANY):
        book.give(f"n{number // 2}", number, order(number))
    for number in range(MANY):
        assert book.of_session(f"s{number}") == order(number)
        assert len(book.of_node(f"n{number // 2}")) == 2
    assert [book.take_back(f"o{number}") for number in range(MANY)] == list(range(MANY))
    assert time.process_time() - began < BOUND / 8
    assert book.of_session("s1") is None
    assert book.of_node("n1") == []


def test_the_ends_of_all_sessions_at_once(stand: Stand) -> None:
    """Each has said something that is not to be said again."""
    for one in waiting(stand, Limits()):
        for kind in ("not-warned", "waits-for-room", "shadow"):
            stand.desk._said.setdefault(one.id, {})[kind] = "why"
    began = time.process_time()
    for one in list(stand.desk.sessions.values()):
        stand.desk._forget(one)
    assert time.process_time() - began < BOUND
    assert not stand.desk._said
    assert not stand.desk.sessions
