"""A job with a checkpoint starts, and the controller's answer is none of those that there should
be: it must not start from scratch (S10)."""

import asyncio
import time
from dataclasses import replace

import pytest

from slurm_reclaim.adapters.store.records import SessionRecords
from slurm_reclaim.config.schema import Agent, Config
from slurm_reclaim.daemon.node_samples import NodeSamples
from slurm_reclaim.daemon.node_sessions import NodeSessions
from slurm_reclaim.daemon.node_starts import NodeStarts
from slurm_reclaim.errors import (
    BadRequest,
    IntegrityError,
    ReclaimError,
    StoreUnavailable,
    WrongNode,
)
from slurm_reclaim.model.order import NodeFacts
from tests.parts.store.stored import commit, new_store

ODD = [
    WrongNode("what was said of node n1 came from 10.0.0.9, which is not that node's"),
    ReclaimError("internal error; reclaimd's log has the details"),
    BadRequest("the request can't be read"),
]


class Facts:
    def facts(self):
        return NodeFacts()


class Controller:
    def __init__(self, error):
        self.error = error

    async def post(self, *_, **__):
        raise self.error


class Clock:
    def now(self):
        return time.time()


def starts(tmp_path, error, saved=True):
    config = replace(Config(), agent=Agent(state=str(tmp_path / "state"), run=str(tmp_path)))
    records = SessionRecords(tmp_path / "records")
    sessions = NodeSessions(config, "n1", records, NodeSamples(lambda: config))
    store = new_store(tmp_path)
    if saved:
        commit(store, 0)
    return NodeStarts(lambda: config, sessions, store, Controller(error), Facts(), Clock())


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
async def test_a_job_with_a_checkpoint_waits(tmp_path, error):
    answer = await starts(tmp_path, error).start({"job": "7", "uid": "2001"})
    assert answer["mode"] == "restore"


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
async def test_a_job_without_one_is_left_alone(tmp_path, error):
    answer = await starts(tmp_path, error, saved=False).start({"job": "7", "uid": "2001"})
    assert answer["mode"] == "ignore"


@pytest.mark.parametrize("error", ODD[:1], ids=lambda error: type(error).__name__)
async def test_a_store_that_is_not_what_it_should_be_is_not_empty(tmp_path, error):
    """Its name was changed by others, say."""
    one = starts(tmp_path, error)

    def of_job(*_):
        raise IntegrityError("the store's id belongs to uid 2001")

    one._store.of_job = of_job
    with pytest.raises(StoreUnavailable, match="belongs to uid 2001"):
        await one.start({"job": "7", "uid": "2001"})


async def test_where_nobody_can_tell_the_plugin_is_given_no_answer(tmp_path):
    one = starts(tmp_path, ODD[0])
    (one._store.root / ".slurm-reclaim-store").unlink()
    with pytest.raises(StoreUnavailable, match="no checkpoint store"):
        await asyncio.wait_for(one.start({"job": "7", "uid": "2001"}), 10)
