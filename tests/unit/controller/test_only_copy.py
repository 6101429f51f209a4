"""What is on its node only is not missing, not deleted and not the store's; and the way out where
that node is lost for good."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from slurm_reclaim.config.schema import Config, Retention, Slurm, Store
from slurm_reclaim.errors import (
    AgentUnavailable,
    BadRequest,
    NotManaged,
    NotPermitted,
    OperationFailed,
    Refused,
    StoreUnavailable,
    WrongState,
)
from slurm_reclaim.model.caller import Caller
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.upload import Upload, UploadState
from slurm_reclaim.stages import expire, shelf, standing, stored
from slurm_reclaim.stages.abandon import abandon
from slurm_reclaim.stages.uploads import only_node
from tests.unit.controller.stand import Stand, emptied
from tests.unit.controller.test_retention import DAY, images, looked
from tests.unit.controller.world import World

AFTER = Config(
    mode="prod",
    slurm=Slurm(interval=10.0),
    store=Store(remote="s3://b/p", upload="after"),
    retention=Retention(ended=7 * DAY, least=0.0, per_session=1),
)


@pytest.fixture
async def stand(engine: Engine) -> AsyncIterator[Stand]:
    """Session 7, restored once: its checkpoint 0 is in the store, 1 waits on its node."""
    world = World()
    world.submit(7)
    one = Stand(world, emptied(engine), config=AFTER)
    await one.until(State.ACTIVE)
    await one.hibernate()
    await one.until(State.HIBERNATED)
    tell(one, UploadState.UPLOADED)
    await one.turn()
    await one.restore()
    await one.until(State.ACTIVE)
    await one.hibernate()
    await one.until(State.HIBERNATED)
    tell(one, UploadState.PENDING)
    await one.turn()
    ruled(one, user_quota=1)
    yield one
    await one.controller.stop()
    one.journal.close()


def ruled(stand: Stand, **rules: int) -> None:
    config = replace(AFTER, retention=replace(AFTER.retention, **rules))
    stand.desk.settings = replace(stand.desk.settings, config=config)


def session_of(stand: Stand) -> Session:
    session = stand.session()
    assert session is not None
    return session


def tell(stand: Stand, state: UploadState) -> None:
    session = session_of(stand)
    upload = Upload(str(session.id), session.checkpoint, state)
    stand.world.uploads = {session.node: (upload,)}


async def listed(stand: Stand) -> dict[int, Any]:
    found = await looked(stand, stored.listing(stand.desk, stand.alice))
    return {each.restarts: each for each in found.checkpoints}


def by(
    stand: Stand, text: str = "7/1", who: Caller | None = None, *, start_over: bool = False
) -> Any:
    return looked(stand, abandon(stand.desk, who or stand.olga, text, start_over=start_over))


async def test_it_is_not_missing_and_is_shown_as_what_it_is(stand: Stand) -> None:
    for _ in range(3):
        await stand.look_through()
    assert "checkpoint-missing" not in stand.kinds()
    node = session_of(stand).node
    found = await listed(stand)
    assert found[1].keeps == f"it is on {node} only until it is uploaded"
    assert found[1].node == node
    tell(stand, UploadState.UPLOADED)
    await stand.turn()
    assert "only" not in (await listed(stand))[1].keeps


async def test_it_is_missing_when_it_was_uploaded_and_is_not_there(stand: Stand) -> None:
    tell(stand, UploadState.UPLOADED)
    stand.world.images.clear()
    for _ in range(3):
        await stand.look_through()
    assert "checkpoint-missing" in stand.kinds()


async def test_where_its_node_is_silent_it_is_not_missing_either(stand: Stand) -> None:
    node = session_of(stand).node
    await stand.reboot()
    stand.world.agents[node].up = False
    for _ in range(3):
        await stand.look_through()
    assert "checkpoint-missing" not in stand.kinds()
    assert (await listed(stand))[1].keeps.startswith(f"it is on {node} only")


async def test_what_is_uploaded_while_the_store_is_looked_through_is_not_missing(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list was made before the upload, the agents' word is heard after it."""
    catalogue = stand.world.catalogue

    def slow() -> Any:
        yield from list(catalogue())
        tell(stand, UploadState.UPLOADED)

    monkeypatch.setattr(stand.world, "catalogue", slow)
    await stand.look_through()
    assert only_node(stand.desk, session_of(stand)) == ""
    assert "checkpoint-missing" not in stand.kinds()


async def test_the_older_one_in_the_store_stays_until_then(stand: Stand) -> None:
    """It is what is left when the node is lost, however short of room the store is."""
    await stand.look_through()
    assert images(stand.world) == [0, 1]
    tell(stand, UploadState.UPLOADED)
    await stand.turn()
    await stand.look_through()
    assert images(stand.world) == [1]


async def test_it_counts_for_the_quota_of_its_owner(stand: Stand) -> None:
    await stand.look_through()
    session = session_of(stand)
    ruled(stand, user_quota=1_234_567 + 100 + 50)
    assert standing.over_quota(stand.desk, session, 50) == ""
    assert "quota: alice has" in standing.over_quota(stand.desk, session, 51)


async def test_what_people_ask_of_it(stand: Stand) -> None:
    await stand.turn()
    shown = await looked(stand, stored.show(stand.desk, stand.alice, "7/1"))
    assert (shown.checkpoint.restarts, shown.parts) == (1, ())
    for ask in (stored.verify, stored.expire_now):
        with pytest.raises(Refused, match="only until it is uploaded"):
            await looked(stand, ask(stand.desk, stand.olga, "7/1"))
    pin = await looked(stand, stored.pin(stand.desk, stand.alice, "7/1", "thesis"))
    assert pin.restarts == 1


async def test_of_an_ended_session_it_waits_until_it_is_uploaded_and_goes_then(
    stand: Stand,
) -> None:
    stand.world.finish(7, "CANCELLED")
    await stand.until(State.ENDED)
    del stand.world.jobs_by_id[7]
    stand.world.time += 8 * DAY
    await stand.turn()
    await stand.look_through()
    assert images(stand.world) == [1]
    stand.world.uploads.clear()
    await stand.turn()
    await stand.look_through()
    assert images(stand.world) == []


async def test_a_store_that_is_away_ends_the_pass(stand: Stand) -> None:
    await looked(stand, shelf.refresh(stand.desk))
    stand.world.away = "s3://b/p did not answer in time"
    with pytest.raises(StoreUnavailable, match="did not answer"):
        await stand.look_through()
    found = await listed(stand)
    assert sorted(found) == [0, 1], "what was seen last is shown"
    asked = sum("catalogue" in line for line in stand.world.history)
    assert asked == 2
    stand.world.away = ""
    await stand.look_through()


async def test_a_store_that_goes_away_during_a_pass_ends_it(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(stand, UploadState.UPLOADED)
    await stand.turn()
    catalogue = stand.world.catalogue

    def then_away() -> Any:
        yield from list(catalogue())
        stand.world.away = "s3://b/p did not answer in time"

    monkeypatch.setattr(stand.world, "catalogue", then_away)
    with pytest.raises(StoreUnavailable):
        await stand.look_through()
    assert images(stand.world) == [0, 1]
    assert "checkpoint-expired" not in stand.kinds()


async def test_one_sessions_trouble_is_its_own_and_the_stores_is_everyones() -> None:
    async def fails(error: Exception) -> None:
        raise error

    await expire._safely("lab/7.2001.1", fails(OperationFailed("its manifest can't be read")))
    with pytest.raises(StoreUnavailable):
        await expire._safely("lab/7.2001.1", fails(StoreUnavailable("it did not answer")))


async def test_agents_that_can_not_use_the_remote_place_are_not_asked(stand: Stand) -> None:
    for agent in stand.world.agents.values():
        agent.facts = replace(agent.facts, store_orders=False)
    await stand.turn()
    with pytest.raises(AgentUnavailable, match="no agent can use s3://b/p"):
        shelf.chosen(stand.desk)


# -- a node that is lost for good ----------------------------------------------------------------


async def lost(stand: Stand) -> str:
    node = session_of(stand).node
    stand.world.agents[node].up = False
    stand.world.time += 600
    for _ in range(3):
        await stand.turn()
    return node


async def test_its_session_goes_back_by_an_operators_word(stand: Stand) -> None:
    node = await lost(stand)
    with pytest.raises(AgentUnavailable, match="no node can restore"):
        await looked(stand, asking(stand))
    with pytest.raises(NotPermitted):
        await by(stand, who=stand.alice)
    after = await by(stand)
    assert (after.checkpoint, after.uploaded, after.state) == (0, 0, State.HIBERNATED)
    assert "checkpoint-abandoned" in stand.kinds()
    assert only_node(stand.desk, after) == ""
    await stand.restore()
    restored = await stand.until(State.ACTIVE)
    assert restored.node != node


def asking(stand: Stand) -> Any:
    from slurm_reclaim.stages import requests

    return requests.ask_restore(stand.desk, stand.alice, "7")


async def test_while_its_agent_says_that_it_has_it_it_is_not_given_up(stand: Stand) -> None:
    with pytest.raises(Refused, match="waits there for the upload"):
        await by(stand)
    stand.world.uploads = {session_of(stand).node: None}
    await stand.turn()
    with pytest.raises(Refused, match="waits there for the upload"):
        await by(stand)
    assert session_of(stand).checkpoint == 1


async def test_a_node_that_came_back_empty_is_as_good_as_lost(stand: Stand) -> None:
    stand.world.images[7, 2001][str(session_of(stand).id)] = {0}
    stand.world.uploads = {session_of(stand).node: ()}
    await stand.turn()
    assert (await by(stand)).checkpoint == 0


async def test_without_another_checkpoint_all_is_given_up_in_so_many_words(stand: Stand) -> None:
    await lost(stand)
    stand.world.images[7, 2001][str(session_of(stand).id)] = {1}
    with pytest.raises(Refused, match="all of its work"):
        await by(stand)
    assert session_of(stand).checkpoint == 1
    assert (await by(stand, start_over=True)).checkpoint == -1


async def test_what_is_not_known_gives_nothing_up(stand: Stand) -> None:
    await lost(stand)
    stand.world.away = "s3://b/p did not answer in time"
    with pytest.raises(StoreUnavailable):
        await by(stand, start_over=True)
    assert session_of(stand).checkpoint == 1


@pytest.mark.parametrize(
    ("text", "error"), [("7", BadRequest), ("7/0", WrongState), ("8/1", NotManaged)]
)
async def test_what_can_not_be_given_up(stand: Stand, text: str, error: type[Exception]) -> None:
    await lost(stand)
    with pytest.raises(error):
        await by(stand, text)
    assert session_of(stand).checkpoint == 1


async def test_what_the_store_has_can_not_be_given_up(stand: Stand) -> None:
    tell(stand, UploadState.UPLOADED)
    await stand.turn()
    with pytest.raises(Refused, match="is in the store"):
        await by(stand)


async def test_one_that_was_uploaded_but_for_the_word_of_it_is_found(stand: Stand) -> None:
    await lost(stand)
    stand.world.uploads.clear()
    assert only_node(stand.desk, session_of(stand))
    after = await by(stand)
    assert (after.checkpoint, after.uploaded) == (1, 1)


async def test_a_node_that_comes_back_in_time_gives_its_checkpoint_back(stand: Stand) -> None:
    """It is the newest: nothing was lost after all."""
    node = await lost(stand)
    assert (await by(stand)).checkpoint == 0
    stand.world.agents[node].up = True
    upload = Upload(str(session_of(stand).id), 1, UploadState.UPLOADED)
    stand.world.uploads = {node: (upload,)}
    for _ in range(3):
        await stand.turn()
    await stand.restore()
    after = await stand.until(State.ACTIVE)
    assert after.checkpoint == 1


async def test_a_running_session_is_let_alone(stand: Stand) -> None:
    await stand.restore()
    await stand.until(State.ACTIVE)
    with pytest.raises(WrongState):
        await by(stand)
