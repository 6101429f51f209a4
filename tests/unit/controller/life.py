"""Session 7 under a policy in minutes, for the tests of idle sessions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from slurm_reclaim.config.schema import Config, Idle, Notices
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.stages import observe
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World

WINDOW, GRACE = 600.0, 120.0
IDLE = {"window": WINDOW, "grace": GRACE, "gap": 60.0, "min_age": 0.0, "cooldown": 1800.0}


def config(mode: str = "prod", **more: Any) -> Config:
    notice = Notices(channels=["terminal", "comment", "mail"], enough=["terminal", "mail"])
    tables = {"idle": Idle(**IDLE), "notice": notice, **more}
    return Config(mode=mode, **tables)


def with_idle(**more: Any) -> Idle:
    return Idle(**{**IDLE, **more})


class Life:
    """Session 7 under a policy."""

    def __init__(self, world: World, engine: Engine, config: Config) -> None:
        self.world = world
        self.stand = Stand(world, engine, config=config)
        self.node = world.agents["n1"]
        self.job = world.submit(7)

    async def start(self) -> Life:
        await self.stand.until(State.ACTIVE)
        return self

    async def pass_time(self, seconds: float) -> None:
        await self.stand.turns(round(seconds / 20), 20.0)

    async def warned(self) -> Life:
        await self.start()
        await self.stand.until(State.WARNED, 100)
        return self

    @property
    def state(self) -> State:
        session = self.stand.session()
        assert session is not None
        return session.state

    def kinds(self) -> list[str]:
        return [k for k in self.stand.kinds() if k != "adopted"]


def report(one: Life) -> Any:
    return observe.take_report(one.stand.desk, one.world.report(one.node))
