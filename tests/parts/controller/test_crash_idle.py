"""The controller dies before and after every effect on the way from idleness to hibernation.

Whatever happens, the session ends up hibernated, its owner was told by a warning whose deadline had
passed, and Slurm's Comment is its owner's again after the restore.
"""

from __future__ import annotations

from sqlalchemy import Engine

from slurm_reclaim.config.schema import Config, Idle, Notices
from slurm_reclaim.model.lifecycle import State
from tests.unit.controller.stand import Stand, emptied
from tests.unit.controller.whole_life import CHANGES, READS, insist
from tests.unit.controller.world import World

CONFIG = Config(
    mode="prod",
    idle=Idle(window=60.0, grace=30.0, gap=60.0, min_age=0.0, cooldown=60.0),
    notice=Notices(channels=["comment", "mail"], enough=["mail"]),
)


async def live(stand: Stand) -> None:
    await stand.until(State.HIBERNATED, 150)
    deadlines = [n.deadline for n in stand.post.sent if n.kind.value == "warning"]
    events = stand.journal.events(limit=1000)
    begun = [e.at for e in events if e.kind == "deadline-passed"]
    assert deadlines, "hibernated without a warning"
    assert all(any(d <= at for d in deadlines) for at in begun), (deadlines, begun)
    await insist(stand, State.ACTIVE)
    await stand.turns(2)


async def test_dying_anywhere_warns_first_and_hibernates_in_the_end(engine: Engine) -> None:
    world = World()
    world.submit(7)
    reference = Stand(world, engine, config=CONFIG)
    await live(reference)
    assert world.jobs_by_id[7].comment == "my notebook"
    calls = list(world.calls)
    assert len(calls) > 40
    tried = 0
    for number, name in enumerate(calls):
        if name in READS and calls[:number].count(name) % 8:
            continue
        for when in ("before", "after") if name in CHANGES else ("before",):
            world = World()
            world.submit(7)
            world.crash_at = (number, when)
            stand = Stand(world, emptied(engine), config=CONFIG)
            await live(stand)
            assert stand.crashes == 1, f"no crash {when} {number} {name}"
            assert world.jobs_by_id[7].comment == "my notebook", f"died {when} {number} {name}"
            assert not [i for i in stand.journal.unsettled() if i[2] in ("hibernate", "requeue")]
            tried += 1
    assert tried > 25
