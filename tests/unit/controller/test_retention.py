"""S6 at the controller: what ended, what sleeps for very long, and what nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from sqlalchemy import Engine

from slurm_reclaim.config.schema import Config, Notices, Retention, Slurm
from slurm_reclaim.errors import (
    AgentUnavailable,
    NotManaged,
    NotPermitted,
    NotReclaimable,
    Refused,
    WrongState,
)
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Living
from slurm_reclaim.stages import requests, stored
from tests.unit.controller.simulated import ALICE, Tree
from tests.unit.controller.stand import Stand, emptied, refused
from tests.unit.controller.world import World

DAY = 86400.0
SLEEPS = {"hibernated": 30 * DAY, "notice": 10 * DAY, "notice_again": DAY}


def under(mode: str = "prod", **retention: Any) -> Config:
    return Config(
        mode=mode,
        slurm=Slurm(interval=10.0),
        retention=Retention(**{"ended": 7 * DAY, "least": 0.0, "per_session": 1, **retention}),
        notice=Notices(channels=["mail", "comment"], enough=["mail"]),
    )


async def made(world: World, engine: Engine, mode: str = "prod", **retention: Any) -> Stand:
    """A hibernated session 7."""
    if 7 not in world.jobs_by_id:
        world.submit(7)
    stand = Stand(world, engine, config=under(mode, **retention))
    await stand.until(State.ACTIVE)
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    return stand


def images(world: World) -> list[int]:
    return sorted(
        n for found in world.images.values() for numbers in found.values() for n in numbers
    )


async def ended(stand: Stand, forgotten: bool = True) -> None:
    stand.world.finish(7, "CANCELLED")
    await stand.until(State.ENDED)
    if forgotten:
        del stand.world.jobs_by_id[7]
    await stand.turn()


async def test_the_image_of_an_ended_session_goes_in_its_time(world: World, engine: Engine) -> None:
    stand = await made(world, engine)
    await ended(stand, forgotten=False)
    world.time += 8 * DAY
    await stand.turn()
    await stand.look_through()
    assert images(world) == [0], "Slurm still shows the job, which somebody may requeue"
    del world.jobs_by_id[7]
    await stand.turn()
    await stand.look_through()
    assert images(world) == []
    assert "checkpoint-expired" in stand.kinds()
    assert stand.journal.unsettled() == []


async def test_not_before_its_time(world: World, engine: Engine) -> None:
    stand = await made(world, engine)
    await ended(stand)
    world.time += 6 * DAY
    await stand.turn()
    await stand.look_through()
    assert images(world) == [0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda stand: setattr(stand.world, "silent", True),
        lambda stand: setattr(stand.world, "store_ahead", 5000.0),
        lambda stand: setattr(stand.desk.view, "started", stand.world.time),
        lambda stand: setattr(stand.desk.settings.config, "mode", "shadow"),
    ],
)
async def test_in_doubt_nothing_goes(world: World, engine: Engine, spoil: Any) -> None:
    stand = await made(world, engine)
    await ended(stand)
    world.time += 8 * DAY
    await stand.turn()
    try:
        spoil(stand)
    except AttributeError:  # the configuration is frozen
        object.__setattr__(stand.desk.settings.config, "mode", "shadow")
    await stand.look_through()
    assert images(world) == [0]


async def test_an_agent_that_still_shows_it_keeps_it(world: World, engine: Engine) -> None:
    stand = await made(world, engine)
    name = str(stand.session().id)
    await ended(stand)
    world.time += 8 * DAY
    world.agents["n2"].trees[7] = Tree(7, ALICE, 0, Living.RUNNING, session=name)
    await stand.turn()
    await stand.look_through()
    assert images(world) == [0]


async def test_a_lost_journal_loses_nothing(world: World, engine: Engine) -> None:
    stand = await made(world, engine)
    await ended(stand)
    await stand.reboot()
    stand = Stand(world, emptied(engine), config=under(ended=0.0))
    world.time += 100 * DAY
    await stand.turn()
    await stand.look_through()
    assert images(world) == [0]
    (listed,) = (await looked(stand, stored.listing(stand.desk, stand.olga))).checkpoints
    assert listed.state == "ORPHAN"
    assert "does not know" in listed.keeps
    with pytest.raises(NotPermitted):
        await looked(stand, stored.expire_now(stand.desk, stand.alice, "7"))
    errand = await looked(stand, stored.expire_now(stand.desk, stand.olga, "7"))
    done = await looked(stand, stored.errand(stand.desk, errand.number, 10))
    assert (done.done, done.error) == (True, "")
    assert images(world) == []


async def looked(stand: Stand, asking: Any) -> Any:
    """The answer to a question that needs an agent."""
    await stand.turn(1.0)
    task = asyncio.ensure_future(asking)
    while not task.done():
        await stand.turn(1.0)
        await asyncio.sleep(0)
    return task.result()


async def test_older_checkpoints_of_a_living_session_go(world: World, engine: Engine) -> None:
    stand = await made(world, engine)
    for restarts in (1, 2):
        await stand.restore()
        await stand.until(State.ACTIVE)
        await stand.hibernate()
        await stand.until(State.HIBERNATED)
        assert stand.session().restarts == restarts + 1
    assert images(world) == [0, 1, 2]
    await stand.look_through()
    assert images(world) == [2]
    await stand.restore()
    assert (await stand.until(State.ACTIVE)).node


async def test_an_owner_is_told_and_told_again_and_then_it_ends(
    world: World, engine: Engine
) -> None:
    stand = await made(world, engine, **SLEEPS)
    await stand.look_through()
    assert "expiry" not in stand.post.kinds()
    world.time += 21 * DAY
    await stand.look_through()
    await stand.look_through()
    assert stand.post.kinds().count("expiry") == 1
    notice = stand.post.sent[-1]
    assert abs(notice.deadline - world.time - 10 * DAY) < 1.1 * DAY
    assert "; ends " in world.jobs_by_id[7].comment
    world.time += 9.5 * DAY
    await stand.look_through()
    assert stand.post.kinds().count("expiry") == 2
    assert stand.session().state is State.HIBERNATED
    world.time += 1 * DAY
    await stand.turn()
    await stand.look_through()
    assert stand.session().state is State.ENDED
    assert "retention-expired" in stand.kinds()
    assert world.jobs_by_id[7].state == "CANCELLED"
    assert images(world) == [0], "it is kept like those of all ended sessions"
    del world.jobs_by_id[7]
    world.time += 8 * DAY
    await stand.turn()
    await stand.look_through()
    assert images(world) == []


async def test_who_can_not_be_told_keeps_the_session(world: World, engine: Engine) -> None:
    stand = await made(world, engine, **SLEEPS)
    stand.post.refuses = "no such user"
    for _ in range(4):
        world.time += 30 * DAY
        await stand.look_through()
    assert stand.session().state is State.HIBERNATED
    assert stand.kinds().count("expiry-not-told") == 1


async def test_a_restore_makes_void_what_was_said(world: World, engine: Engine) -> None:
    stand = await made(world, engine, **SLEEPS)
    world.time += 25 * DAY
    await stand.look_through()
    assert stand.post.kinds().count("expiry") == 1
    await stand.restore()
    await stand.until(State.ACTIVE)
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    world.time += 15 * DAY
    await stand.look_through()
    assert stand.session().state is State.HIBERNATED
    assert stand.post.kinds().count("expiry") == 1, "this time it has slept for 15 days only"


async def test_a_release_in_the_last_moment_wins(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = await made(world, engine, **SLEEPS)
    world.time += 25 * DAY
    await stand.look_through()
    world.time += 20 * DAY
    await stand.turn()
    hold = world.hold

    async def too_late(name: str) -> None:
        await hold(name)
        job = world.jobs_by_id[int(name)]
        job.held, job.admin_hold, job.state = False, False, "PENDING"

    monkeypatch.setattr(world, "hold", too_late)
    await stand.look_through()
    assert world.jobs_by_id[7].state != "CANCELLED"
    assert (await stand.until(State.ACTIVE)).state is State.ACTIVE


class Counting(World):
    """Counts effects that come as often whatever a thread takes, and dies only there."""

    @contextmanager
    def effect(self, name: str) -> Iterator[None]:
        if name in ("jobs", "detail", "journal.keep_evidence"):
            yield
            return
        with super().effect(name):
            yield


async def test_dying_anywhere_of_a_pass_ends_the_same(engine: Engine) -> None:
    """From the notice over the end of the session to the end of its image: interrupted before and
    after every effect, and taken up again."""

    async def live(world: World) -> tuple[Stand, Any]:
        world.crash_at, crash = None, world.crash_at
        stand = await made(world, emptied(engine), **SLEEPS)
        world.calls.clear()
        world.crash_at = crash
        for days in (21, 12, 8):
            world.time += days * DAY
            for _ in range(2):
                await stand.turn()
                with suppress(AgentUnavailable):  # nobody has reported to the new controller yet
                    await stand.look_through()
            if world.jobs_by_id.get(7) is not None and days == 12:
                assert world.jobs_by_id[7].state == "CANCELLED"
                del world.jobs_by_id[7]
        session = stand.session()
        return stand, (
            session.state,
            images(world),
            stand.journal.unsettled(),
            7 in world.jobs_by_id,
        )

    _, wanted = await live(Counting())
    assert wanted == (State.ENDED, [], [], False)
    world = Counting()
    await live(world)
    calls = list(world.calls)
    assert len(calls) >= 8
    for number in range(len(calls)):
        # After a write to the journal is before what comes next.
        for when in ("before", "after") if "journal" not in calls[number] else ("before",):
            world = Counting()
            world.crash_at = (number, when)
            stand, found = await live(world)
            assert stand.crashes == 1, f"{when} {number} {calls[number]}"
            assert found == wanted, f"died {when} {number} {calls[number]}"


async def test_an_image_that_is_missing_is_said_at_once(world: World, engine: Engine) -> None:
    stand = await made(world, engine)
    await stand.look_through()
    assert "checkpoint-missing" not in stand.kinds()
    for found in world.images.values():
        found.clear()
    for _ in range(3):
        await stand.look_through()
    assert stand.kinds().count("checkpoint-missing") == 1


# -- what people ask for -------------------------------------------------------------------------


async def test_a_quota_refuses_up_front_and_deletes_nothing(world: World, engine: Engine) -> None:
    stand = await made(world, engine, user_quota=50)
    await stand.look_through()
    world.submit(8)
    for _ in range(3):
        await stand.turn()
    with pytest.raises(NotReclaimable, match="quota: alice has"):
        await requests.ask_hibernate(stand.desk, stand.alice, "8", "asked")
    world.submit(9, uid=2002)
    for _ in range(3):
        await stand.turn()
    await requests.ask_hibernate(stand.desk, stand.bob, "9", "asked")
    await stand.look_through()
    assert 0 in images(world)


async def test_pins_of_owners_and_of_operators(world: World, engine: Engine) -> None:
    stand = await made(world, engine, owner_pins=1, **SLEEPS)
    desk = stand.desk
    with pytest.raises(NotPermitted):
        await looked(stand, stored.pin(desk, stand.bob, "7", ""))
    mine = await looked(stand, stored.pin(desk, stand.alice, "7/0", "thesis"))
    assert (mine.admin, mine.by) == (False, "alice")
    await looked(stand, stored.pin(desk, stand.alice, "7", "again"))
    await looked(stand, stored.pin(desk, stand.olga, "7", "audit"))
    assert len(stand.journal.pins()) == 2
    world.time += 100 * DAY
    await stand.look_through()
    assert "expiry" not in stand.post.kinds()
    (gone,) = await looked(stand, stored.unpin(desk, stand.alice, "7"))
    assert gone.by == "alice"
    with pytest.raises(NotPermitted, match="pinned by olga"):
        await looked(stand, stored.unpin(desk, stand.alice, "7"))
    with pytest.raises(Refused, match="pinned"):
        await looked(stand, stored.expire_now(desk, stand.olga, "7"))
    await looked(stand, stored.unpin(desk, stand.olga, "7"))
    with pytest.raises(WrongState, match="not pinned"):
        await looked(stand, stored.unpin(desk, stand.olga, "7"))


async def test_an_owner_has_only_so_many_pins(world: World, engine: Engine) -> None:
    stand = await made(world, engine, owner_pins=0)
    with pytest.raises(Refused, match="owner_pins"):
        await looked(stand, stored.pin(stand.desk, stand.alice, "7", ""))


async def test_what_a_living_session_needs_is_not_expired_by_hand(
    world: World, engine: Engine
) -> None:
    stand = await made(world, engine)
    for who in (stand.alice, stand.olga):
        with pytest.raises(Refused, match="has not ended"):
            await looked(stand, stored.expire_now(stand.desk, who, "7"))
    with pytest.raises(NotManaged):
        await looked(stand, stored.expire_now(stand.desk, stand.alice, "7/3"))
    assert images(world) == [0]


async def test_without_an_agent_that_has_the_store(world: World, engine: Engine) -> None:
    stand = await made(world, engine)
    for agent in world.agents.values():
        agent.up = False
    world.time += 1000
    error = await refused(stored.listing(stand.desk, stand.alice))
    assert isinstance(error, AgentUnavailable)
    assert "store" in error.message


async def test_what_is_listed(world: World, engine: Engine) -> None:
    stand = await made(world, engine)
    listing = await looked(stand, stored.listing(stand.desk, stand.alice))
    (mine,) = listing.checkpoints
    assert (mine.restarts, mine.state, mine.job, listing.total) == (0, "HIBERNATED", "7", 0)
    assert "all there is" in mine.keeps
    assert (await looked(stand, stored.listing(stand.desk, stand.bob))).checkpoints == ()
    every = await looked(stand, stored.listing(stand.desk, stand.olga))
    assert every.total == 100
