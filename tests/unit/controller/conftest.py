"""The world with a running session 7 of alice, and a controller that knows it."""

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
