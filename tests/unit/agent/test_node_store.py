"""Orders about the store at an agent: S6 looked at once more where a session is seen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.adapters.store.records import SessionRecords
from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon import node_store
from slurm_reclaim.daemon.node_samples import NodeSamples
from slurm_reclaim.daemon.node_sessions import NodeSessions
from slurm_reclaim.daemon.node_store import NodeStoreOrders
from slurm_reclaim.model.catalogue import StoreTask
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living, Order, Outcome, Result, Verb
from tests.parts.store.stored import ID, commit, new_store


class Clock:
    def now(self) -> float:
        return time.time()


@pytest.fixture
def sessions(tmp_path: Path) -> NodeSessions:
    return NodeSessions(Config(), "n1", SessionRecords(tmp_path / "r"), NodeSamples(Config))


@pytest.fixture
def orders(tmp_path: Path, sessions: NodeSessions) -> NodeStoreOrders:
    store = new_store(tmp_path)
    for number in range(3):
        commit(store, number, ["0-1.pack", f"{number}-2.pack"])
    return NodeStoreOrders(sessions, Collection(store, "n1"), Clock())


async def told(orders: NodeStoreOrders, verb: Verb, **task: Any) -> Result:
    wanted = StoreTask(**{"session": str(ID), **task})
    return await orders.carry_out(Order("o", verb, "", 0, 0, "for a test", store=wanted))


def alive(sessions: NodeSessions, living: Living) -> None:
    sessions.sessions[7] = NodeSession(7, 2001, 2001, 3, "fresh", living, session=str(ID))


async def test_looking(orders: NodeStoreOrders) -> None:
    result = await told(orders, Verb.CATALOGUE)
    (session,) = result.store.sessions
    assert (session.session, session.newest, result.store.after) == (str(ID), 2, "")
    parts = (await told(orders, Verb.PARTS, restarts=(1,))).store.parts
    assert [part.path for part in parts][-1] == "packs/1-2.pack"
    assert (await told(orders, Verb.VERIFY, restarts=(1,))).store.differs == ()
    missing = await told(orders, Verb.VERIFY, restarts=(9,))
    assert missing.outcome is Outcome.FAILED
    assert "no committed checkpoint" in missing.reason


async def test_expiring(orders: NodeStoreOrders) -> None:
    result = await told(orders, Verb.EXPIRE, restarts=(0, 1))
    assert (result.outcome, result.store.deleted) == (Outcome.DONE, (0, 1))
    assert result.store.freed > 0
    newest = await told(orders, Verb.EXPIRE, restarts=(2,))
    assert newest.outcome is Outcome.REFUSED
    assert (await told(orders, Verb.EXPIRE, restarts=(2,), ended=True)).outcome is Outcome.DONE


@pytest.mark.parametrize("living", list(Living))
async def test_what_is_seen_here_has_not_ended(
    orders: NodeStoreOrders, sessions: NodeSessions, living: Living
) -> None:
    alive(sessions, living)
    ended = await told(orders, Verb.EXPIRE, restarts=(0, 1, 2), ended=True)
    assert ended.outcome is Outcome.REFUSED
    assert "has not ended" in ended.reason
    older = await told(orders, Verb.EXPIRE, restarts=(0,))
    assert older.outcome is (Outcome.DONE if living is Living.RUNNING else Outcome.REFUSED)


async def test_a_store_that_is_away_is_told_apart(orders: NodeStoreOrders, tmp_path: Path) -> None:
    """It says nothing of what is there, and those who asked may stop asking."""
    (tmp_path / "store" / ".slurm-reclaim-store").unlink()
    for verb in (Verb.CATALOGUE, Verb.EXPIRE):
        result = await told(orders, verb, restarts=(0,))
        assert (result.outcome, result.store.away) == (Outcome.FAILED, True)
        assert "no checkpoint store" in result.reason
    assert not (await told(orders, Verb.VERIFY, restarts=(9,))).store.away


async def test_another_cluster_on_the_same_store(orders: NodeStoreOrders) -> None:
    other = await told(orders, Verb.EXPIRE, session="other/7.2001.1000", restarts=(0,), ended=True)
    assert (other.outcome, "another cluster" in other.reason) == (Outcome.REFUSED, True)


async def test_an_answer_that_no_report_could_carry(
    orders: NodeStoreOrders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_store, "MOST_BYTES", 100)
    result = await told(orders, Verb.CATALOGUE)
    assert (result.outcome, result.store.sessions) == (Outcome.FAILED, ())
