"""A checkpoint that only its node has is restored there only, until that node says otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from slurm_reclaim.config.schema import Config, Store
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Report
from slurm_reclaim.model.upload import Upload, UploadState
from slurm_reclaim.stages import observe, stored
from slurm_reclaim.stages.hold import suitable
from slurm_reclaim.stages.uploads import only_node
from tests.unit.controller.stand import Stand, emptied
from tests.unit.controller.world import World

AFTER = Config(store=Store(remote="s3://b/p", upload="after"))


@pytest.fixture
async def stand(engine: Engine) -> AsyncIterator[Stand]:
    world = World()
    world.submit(7)
    one = Stand(world, emptied(engine), config=AFTER)
    await one.until(State.ACTIVE)
    await one.hibernate()
    await one.until(State.HIBERNATED)
    yield one
    await one.controller.stop()
    one.journal.close()


def fits(stand: Stand) -> tuple[tuple[str, ...], dict[str, str]]:
    session = stand.session()
    assert session is not None
    found = suitable(stand.desk, session, stand.desk.view.jobs[7])
    return found.nodes, found.unfit


def say(stand: Stand, node: str, *states: UploadState, restarts: int = 0) -> tuple[Upload, ...]:
    session = stand.session()
    assert session is not None
    told = tuple(Upload(str(session.id), restarts, state) for state in states)
    report: Report = replace(stand.world.report(stand.world.agents[node]), uploads=told)
    return observe.take_report(stand.desk, report).uploads


def other(stand: Stand) -> tuple[str, str]:
    session = stand.session()
    assert session is not None
    return session.node, next(n for n in stand.world.agents if n != session.node)


async def test_what_is_not_known_is_pending(stand: Stand) -> None:
    own, elsewhere = other(stand)
    nodes, unfit = fits(stand)
    assert nodes == (own,)
    assert unfit == {elsewhere: f"its checkpoint is on {own} only until it is uploaded"}
    say(stand, own)
    assert fits(stand)[0] == (own,), "a report that does not name it says nothing"


async def test_the_nodes_own_word_frees_it_and_is_said_once(stand: Stand) -> None:
    own, elsewhere = other(stand)
    assert say(stand, own, UploadState.PENDING) == ()
    assert fits(stand)[0] == (own,)
    assert say(stand, elsewhere, UploadState.UPLOADED) == ()
    assert fits(stand)[0] == (own,), "another node knows nothing of it"
    assert say(stand, own, UploadState.UPLOADED)
    assert say(stand, own, UploadState.UPLOADED), "told again: acknowledged again"
    assert set(fits(stand)[0]) == {own, elsewhere}
    assert stand.kinds().count("checkpoint-uploaded") == 1


async def test_it_outlives_the_controller(stand: Stand) -> None:
    own, elsewhere = other(stand)
    say(stand, own, UploadState.UPLOADED)
    await stand.reboot()
    await stand.turn()
    assert set(fits(stand)[0]) == {own, elsewhere}


async def test_an_older_word_does_not_free_a_newer_checkpoint(stand: Stand) -> None:
    own, _ = other(stand)
    say(stand, own, UploadState.UPLOADED)
    await stand.restore()
    await stand.until(State.ACTIVE)
    await stand.hibernate()
    session = await stand.until(State.HIBERNATED)
    assert session.checkpoint > 0
    say(stand, session.node, UploadState.UPLOADED, restarts=0)
    assert fits(stand)[0] == (session.node,)


async def test_a_pending_one_holds_it_although_the_setting_has_changed(stand: Stand) -> None:
    own, elsewhere = other(stand)
    stand.desk.settings = replace(stand.desk.settings, config=Config())
    session = stand.session()
    assert session is not None
    assert only_node(stand.desk, session) == ""
    say(stand, own, UploadState.PENDING)
    assert fits(stand)[0] == (own,)
    say(stand, own, UploadState.STORED)
    assert set(fits(stand)[0]) == {own, elsewhere}
    assert "checkpoint-uploaded" not in stand.kinds()


async def test_a_job_that_starts_elsewhere_waits(stand: Stand) -> None:
    """An admin can undo the list of excluded nodes."""
    own, elsewhere = other(stand)
    await stand.restore()
    job = stand.world.jobs_by_id[7]
    from slurm_reclaim.model.order import StartMode, StartQuestion
    from slurm_reclaim.stages import start

    stand.world.tick()
    await stand.controller.cycle()
    session = stand.session()
    assert session is not None
    facts = stand.world.agents[elsewhere].facts
    job.node = elsewhere
    question = StartQuestion(elsewhere, 7, session.id.uid, facts, (f"{session.id}/0",))
    answer = await start.answer(stand.desk, question)
    assert answer.mode is StartMode.WAIT
    assert f"is on {own} only" in answer.reason


async def test_nonsense_of_one_agent_takes_nobodys_catalogue_away(stand: Stand) -> None:
    names = ("../etc", "", "lab/7².2001.1000", f"lab/{'7' * 5000}.2001.1000")
    told = tuple(Upload(name, 0, UploadState.PENDING) for name in names)
    for node in stand.world.agents:
        stand.world.uploads[node] = (*told, *(stand.world.uploads.get(node) or ()))
    await stand.turn()
    asking = asyncio.ensure_future(stored.listing(stand.desk, stand.root))
    while not asking.done():
        await stand.turn()
        await asyncio.sleep(0)
    session = stand.session()
    assert session is not None
    assert [each.session for each in (await asking).checkpoints] == [str(session.id)]


async def test_a_job_that_slurm_has_started_elsewhere_does_not_take_the_checkpoint_along(
    stand: Stand,
) -> None:
    """Its node was lost right after the commit, say: where the job is then is not where its
    checkpoint is, and it must be possible to restore it there once that node is back."""
    own, elsewhere = other(stand)
    await stand.restore()
    stand.world.node_states[own] = frozenset({"down"})
    stand.world.jobs_by_id[7].excluded = ""
    stand.world.tick()
    assert stand.world.jobs_by_id[7].node == elsewhere
    for _ in range(3):
        await stand.controller.cycle()
    session = stand.session()
    assert session is not None
    assert session.node == elsewhere
    assert only_node(stand.desk, session) == own
    assert session.state is State.RESTORING, "and is not restored where it is not"
    assert say(stand, own, UploadState.UPLOADED)
    session = await stand.until(State.ACTIVE)
    assert session.node == elsewhere
