"""The journal can't be written: nothing is begun, nothing is lost, and it is said once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from slurm_reclaim.errors import StoreUnavailable
from slurm_reclaim.model.lifecycle import State
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World


@contextmanager
def unwritable(engine: Engine) -> Iterator[None]:
    """As where the file system has been mounted read-only, or is full."""

    def limit(connection: Any, _record: object) -> None:
        connection.execute("PRAGMA query_only=ON").close()

    engine.dispose()
    event.listen(engine, "connect", limit)
    try:
        yield
    finally:
        event.remove(engine, "connect", limit)
        engine.dispose()


async def test_it_is_said_once_and_goes_on(
    world: World, stand: Stand, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    await stand.hibernate()
    await stand.until(State.HIBERNATED)
    caplog.set_level(logging.INFO)
    world.submit(8)
    world.tick()
    for agent in world.agents.values():
        stand.desk.view.heard(world.report(agent), world.now())
    with unwritable(engine):
        for _ in range(3):
            world.tick()
            await stand.controller.cycle()
            await stand.controller.settle()
        said = [r.getMessage() for r in caplog.records if "journal" in r.getMessage()]
        assert said == [
            "the journal does not answer, so nothing is decided: "
            "the journal did not answer: attempt to write a readonly database"
        ]
        with pytest.raises(StoreUnavailable):
            await stand.restore()
        assert world.jobs_by_id[7].held
    await stand.turns(3)
    assert 8 in {id.job_id for id in stand.desk.sessions}
    assert "the journal answers again" in caplog.text
    await stand.restore()
    await stand.until(State.ACTIVE)
