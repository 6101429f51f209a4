"""Sessions at a remote place, as the tests of their deletion have them."""

import time

from slurm_reclaim.adapters.store.frames import FRAME
from slurm_reclaim.config.schema import Retention
from slurm_reclaim.model.retention import Known, Standing
from slurm_reclaim.policy import retention
from tests.parts.store.cloud import DATA
from tests.parts.store.world import ID

SECOND = DATA + b"second" * FRAME


def three(cloud):
    """Checkpoints 0, 1 and 2 that share what they can, made on n1."""
    one = cloud.node("n1")
    one.put(0, {"pages-1.img": DATA})
    one.put(1, {"pages-1.img": SECOND})
    one.put(2, {"pages-1.img": SECOND})
    return one


def removals(part=""):
    return lambda method, path: method == "DELETE" and part in path


def whole(cloud, *numbers):
    """What counts is whole, as a node sees it that has nothing."""
    collection = cloud.node(f"fresh{time.monotonic_ns()}").collection()
    (found,) = collection.catalogue()[0] or [None]
    assert [c.restarts for c in found.checkpoints] == list(numbers)
    for number in numbers:
        assert collection.verify(ID, number) == []


def next_pass(collection, ended):
    """What the controller makes of what is left."""
    sessions, _ = collection.catalogue()
    standing = Standing.ENDED if ended else Standing.ALIVE
    known = {s.session: Known(standing, 0.0, ID.uid, checkpoint=2) for s in sessions}
    rules = Retention(ended=0.0, per_session=1, least=0.0)
    for expiry in retention.plan(sessions, known, [], rules, 1e9).expiries:
        collection.expire(ID, expiry.restarts, ended=expiry.ended)
