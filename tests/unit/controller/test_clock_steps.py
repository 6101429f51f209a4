"""The wall clock of the controller's host is put forward or back while a session is hibernated and
restored: nothing waits for a time that it has seen already."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from slurm_reclaim.adapters.clock import PACE, SteadyClock
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import StartMode, StartQuestion
from slurm_reclaim.ports import Clock
from slurm_reclaim.stages import start
from tests.unit.controller.simulated import ALICE, FIT
from tests.unit.controller.stand import Stand, emptied
from tests.unit.controller.whole_life import live, outcome
from tests.unit.controller.world import World

HOUR = 3600.0


class OtherHost(Stand):
    """Its wall clock is `ahead` of the world's, and is put there at turn `at`; with `anew` it is
    started anew then."""

    def __init__(self, *args: Any, ahead: float, at: int, anew: bool) -> None:
        self.skew, self.ahead, self.left, self.anew = 0.0, ahead, at, anew
        super().__init__(*args)

    def clock(self) -> Clock:
        return SteadyClock(lambda: self.world.now() + self.skew, self.world.now)

    async def turn(self, seconds: float = 10.0) -> None:
        self.left -= 1
        if self.left == 0:
            self.skew = self.ahead
            if self.anew:
                await self.reboot()
        await super().turn(seconds)


async def whole(engine: Engine, ahead: float, at: int, anew: bool) -> tuple[object, int]:
    world = World()
    world.submit(7)
    stand = OtherHost(world, emptied(engine), ahead=ahead, at=at, anew=anew)
    await live(stand)
    return outcome(stand), at - stand.left


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
async def test_the_clock_is_put_back_or_forward(engine: Engine, ahead: float, anew: bool) -> None:
    expected, turns = await whole(engine, 0.0, 0, False)
    assert turns > 5
    for at in range(1, turns):
        found, _ = await whole(engine, ahead, at, anew)
        assert found == expected, f"put {ahead} s ahead at turn {at}"


async def test_a_start_from_before_the_clock_was_put_back_is_no_second_one(engine: Engine) -> None:
    world = World()
    world.submit(7)
    stand = OtherHost(world, engine, ahead=-HOUR, at=0, anew=False)
    await live(stand)
    stand.skew = -HOUR
    await stand.reboot()
    session, job = stand.session(), world.jobs_by_id[7]
    assert session is not None
    question = StartQuestion(job.node, 7, ALICE, FIT, (f"{session.id}/{session.checkpoint}",))
    assert (await start.answer(stand.desk, question)).mode is StartMode.WAIT
    assert "slurm-set-back" not in stand.kinds()
    await stand.until(State.ACTIVE)


class Host:
    def __init__(self) -> None:
        self.wall, self.monotonic = 1000.0, 5.0

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


def test_it_is_the_hosts_clock_but_never_goes_back() -> None:
    host = Host()
    clock = SteadyClock(lambda: host.wall, lambda: host.monotonic)
    host.pass_time(10)
    assert clock.now() == 1010.0
    host.wall += HOUR
    assert clock.now() == 1010.0 + HOUR
    assert clock.behind == 0.0
    host.wall -= HOUR
    assert clock.now() == 1010.0 + HOUR
    assert clock.behind == HOUR
    host.pass_time(100)
    assert clock.now() == pytest.approx(1010.0 + HOUR + 100 * PACE)
    for _ in range(40):
        host.pass_time(1000)
    assert clock.now() == host.wall, "the host's has caught up"
