"""`GET /v1/samples`: reports of agents reach whoever records, in bounded memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from slurm_reclaim.daemon.recordings import ASKED_WITHIN, MOST_AT_ONCE, Recordings
from slurm_reclaim.errors import NotPermitted
from slurm_reclaim.model.sample import Reading, Sample
from slurm_reclaim.model.trace import Recorded
from slurm_reclaim.stages import observe
from tests.unit.controller.simulated import ALICE
from tests.unit.controller.stand import Stand
from tests.unit.controller.test_api import Api
from tests.unit.controller.test_api import api as api
from tests.unit.controller.world import World


def tell(stand: Stand, world: World, count: int = 1) -> list[Sample]:
    """A report of session 7's agent with `count` samples."""
    begin = world.now()
    samples = [Sample(begin + n, 1.0, {"cpu": Reading(0.5)}) for n in range(1, count + 1)]
    report = world.report(world.agents[stand.session().node])
    sessions = tuple(replace(one, samples=tuple(samples)) for one in report.sessions)
    observe.take_report(stand.desk, replace(report, sessions=sessions))
    return samples


async def test_what_agents_tell_is_given_to_whoever_asks(
    api: Api, stand: Stand, world: World
) -> None:
    async with api.of(0) as root:
        tell(stand, world)
        began = await root.get("/v1/samples", Recorded)
        assert (began.cluster, began.samples) == ("lab", ())
        told = tell(stand, world, 3)
        found = await root.get(f"/v1/samples?after={began.last}", Recorded)
        assert [one.sample for one in found.samples] == told
        (watched,) = found.sessions
        session = stand.session()
        assert watched.session == str(session.id) == found.samples[0].session
        assert (watched.user, watched.node, watched.tres) == ("alice", session.node, session.tres)
        nothing = await root.get(f"/v1/samples?after={found.last}", Recorded)
        assert (nothing.last, nothing.samples, nothing.lost) == (found.last, (), 0)


async def test_only_operators_record(api: Api) -> None:
    async with api.of(ALICE) as alice:
        with pytest.raises(NotPermitted):
            await alice.get("/v1/samples", Recorded)


async def test_a_question_waits_for_the_next_report(stand: Stand, world: World) -> None:
    recordings = Recordings(stand.desk)
    began = await recordings.after(-1, 0)
    waiting = asyncio.create_task(recordings.after(began.last, 30))
    await asyncio.sleep(0)
    told = tell(stand, world, 2)
    found = await asyncio.wait_for(waiting, 5)
    assert [one.sample for one in found.samples] == told


async def test_nothing_is_kept_while_nobody_asks(stand: Stand, world: World) -> None:
    recordings = Recordings(stand.desk)
    tell(stand, world, 5)
    assert len(recordings._ring) == 0
    await recordings.after(-1, 0)
    tell(stand, world, 5)
    assert len(recordings._ring) == 5
    world.time += ASKED_WITHIN + 1
    tell(stand, world, 5)
    assert len(recordings._ring) == 0


async def test_memory_is_bounded_and_what_is_lost_is_said(stand: Stand, world: World) -> None:
    recordings = Recordings(stand.desk, most=10)
    began = await recordings.after(-1, 0)
    told = tell(stand, world, 25)
    found = await recordings.after(began.last, 0)
    assert len(recordings._ring) == 10
    assert [one.sample for one in found.samples] == told[-10:]
    assert (found.lost, found.last) == (15, 25)


async def test_a_long_backlog_comes_in_parts_without_a_hole(stand: Stand, world: World) -> None:
    recordings = Recordings(stand.desk)
    number = (await recordings.after(-1, 0)).last
    told = tell(stand, world, MOST_AT_ONCE + 7)
    got: list[Sample] = []
    for _ in range(2):
        found = await recordings.after(number, 0)
        number = found.last
        assert len(found.samples) <= MOST_AT_ONCE
        got += [one.sample for one in found.samples]
    assert got == told


async def test_numbers_of_an_earlier_reclaimd_begin_anew(stand: Stand, world: World) -> None:
    recordings = Recordings(stand.desk)
    await recordings.after(-1, 0)
    told = tell(stand, world, 2)
    found = await recordings.after(1_000_000, 0)
    assert [one.sample for one in found.samples] == told
