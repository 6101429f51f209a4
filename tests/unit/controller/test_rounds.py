"""What is done again and again."""

from __future__ import annotations

import asyncio
import time

import pytest

from slurm_reclaim.daemon.rounds import Rounds


class Work:
    def __init__(self) -> None:
        self.times = 0
        self.done = asyncio.Event()

    async def __call__(self) -> None:
        self.times += 1
        self.done.set()

    async def again(self) -> None:
        self.done.clear()
        await asyncio.wait_for(self.done.wait(), 30)


async def test_it_is_done_until_it_is_stopped() -> None:
    rounds, work = Rounds(), Work()
    rounds.begin(work, lambda: 0.001)
    for _ in range(3):
        await work.again()
    await rounds.stop()
    times = work.times
    await asyncio.sleep(0.01)
    assert work.times == times


async def test_what_fails_is_done_again(caplog: pytest.LogCaptureFixture) -> None:
    rounds, work = Rounds(), Work()

    async def failing() -> None:
        await work()
        raise RuntimeError("once more")

    rounds.begin(failing, lambda: 0.001)
    await work.again()
    await work.again()
    await rounds.stop()
    assert "once more" in caplog.text


async def test_a_pause_that_was_made_shorter_counts_at_once() -> None:
    rounds, work = Rounds(), Work()
    pause = 3600.0
    rounds.begin(work, lambda: pause)
    await work.again()
    pause = 0.001
    rounds.changed()
    await work.again()
    await rounds.stop()


async def test_the_first_may_come_later() -> None:
    rounds, late, soon = Rounds(), Work(), Work()
    rounds.begin(late, lambda: 0.001, first=3600.0)
    rounds.begin(soon, lambda: 0.001)
    await soon.again()
    await soon.again()
    await rounds.stop()
    assert late.times == 0


async def test_where_the_clock_was_put_back_nothing_waits_for_the_old_time() -> None:
    ahead = 3600.0
    rounds, work = Rounds(lambda: time.time() + ahead), Work()
    rounds.begin(work, lambda: 0.001)  # an hour from now by the clock of APScheduler
    ahead = 0.0
    rounds.keep_step()
    await work.again()
    await rounds.stop()


async def test_where_the_clock_was_put_forward_nothing_is_put_off() -> None:
    ahead = 0.0
    rounds, work = Rounds(lambda: time.time() + ahead), Work()
    rounds.begin(work, lambda: 0.001)
    await work.again()
    ahead = 3600.0
    rounds.keep_step()
    await work.again()
    await rounds.stop()


async def test_what_is_not_due_is_not_hurried() -> None:
    rounds, late, soon = Rounds(), Work(), Work()
    rounds.begin(late, lambda: 0.001, first=3600.0)
    rounds.begin(soon, lambda: 0.001)
    rounds.keep_step()
    await soon.again()
    await rounds.stop()
    assert late.times == 0
