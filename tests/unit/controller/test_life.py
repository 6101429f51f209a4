"""A session's whole life, as the world sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_reclaim.model.lifecycle import State
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def stand(world: World, tmp_path: Path) -> Stand:
    world.submit(7)
    stand = Stand(world, tmp_path)
    await stand.until(State.ACTIVE)
    return stand


async def test_hibernate_and_restore(world: World, stand: Stand) -> None:
    job = world.jobs_by_id[7]
    assert (await stand.hibernate()).state is State.HIBERNATING
    hibernated = await stand.until(State.HIBERNATED)
    assert (job.state, job.restarts, job.held) == ("SPECIAL_EXIT", 1, True)
    assert hibernated.restarts == 1
    assert hibernated.checkpoint == 0
    assert job.comment.startswith("hibernated 2027-")
    assert job.comment.endswith("1.2 MiB; restore: reclaim restore 7")
    assert job.admin_comment.startswith("JS1:abc [slurm-reclaim: hibernated 2027-")
    await stand.turn()
    assert job.begin == 0.0
    assert 3480 <= job.time_limit <= 3600
    assert (await stand.restore()).state is State.QUEUED
    active = await stand.until(State.ACTIVE)
    assert active.restarts == 1
    assert world.agents[active.node].trees[7].restored
    await stand.turns(2)
    assert (job.comment, job.admin_comment) == ("my notebook", "JS1:abc")
    assert not stand.journal.unsettled()
    assert stand.kinds() == [
        "adopted", "hibernate-asked", "checkpoint-committed", "requeue-observed", "released",
        "job-started", "restore-succeeded",
    ]  # fmt: skip
