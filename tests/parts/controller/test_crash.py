"""S7: the controller dies before and after every single effect, and a new one goes on.

Each run is the whole life: hibernated, restored on a node that fails, held again, restored
elsewhere. World fails the test where S1, S3 or S10 is broken on the way.
"""

from __future__ import annotations

from sqlalchemy import Engine

from slurm_reclaim.model.lifecycle import State
from tests.unit.controller.stand import Stand, emptied
from tests.unit.controller.whole_life import CHANGES, READS, live, outcome
from tests.unit.controller.world import World


async def test_dying_anywhere_changes_nothing_in_the_end(engine: Engine) -> None:
    world = World()
    world.submit(7)
    reference = Stand(world, engine)
    await live(reference)
    wanted = outcome(reference)
    assert wanted[0] is State.ACTIVE
    assert wanted[1:3] == ("n2", ["n2"])
    calls = list(world.calls)
    assert len(calls) > 40
    for number, name in enumerate(calls):
        if name in READS and calls[:number].count(name) % 5:
            continue
        for when in ("before", "after") if name in CHANGES else ("before",):
            world = World()
            world.submit(7)
            world.crash_at = (number, when)
            stand = Stand(world, emptied(engine))
            await live(stand)
            assert stand.crashes == 1, f"no crash {when} {number} {name}"
            assert outcome(stand) == wanted, f"died {when} {number} {name}: {world.history}"
