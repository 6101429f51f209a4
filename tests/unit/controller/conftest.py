"""The world with a running session 7 of alice, and a controller that knows it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from slurm_reclaim.adapters.journal.engine import open_engine
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.stages import hold, release
from tests.unit.controller.life import Life, config
from tests.unit.controller.stand import Stand, emptied
from tests.unit.controller.world import World


@pytest.fixture(autouse=True)
def nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real seconds, in a world whose clock stands still meanwhile."""
    monkeypatch.setattr(release, "FIRST_REPORTS", 0.0)
    monkeypatch.setattr(hold, "SETTLE", 0)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(scope="session")
def one_engine() -> Iterator[Engine]:
    """A real file, since what was not committed must be gone with its connection; in memory where
    there is such a place, and one for all tests: each engine compiles every statement anew."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        engine = open_engine("", str(Path(folder)))
        yield engine
        engine.dispose()


@pytest.fixture
def engine(one_engine: Engine) -> Engine:
    return emptied(one_engine)


@pytest.fixture
async def stand(world: World, engine: Engine) -> Stand:
    world.submit(7)
    stand = Stand(world, engine)
    await stand.until(State.ACTIVE)
    return stand


@pytest.fixture
def life(world: World, engine: Engine) -> Callable[..., Life]:
    """Session 7 under config(...)."""

    def make(**more: Any) -> Life:
        return Life(world, engine, config(**more))

    return make
