"""A job with a checkpoint starts, and the controller's answer is none of those that there should
be: it must not start from scratch (S10)."""

import asyncio
import os
import threading
import time
from dataclasses import replace

import pytest

from slurm_reclaim.adapters.proc import tree
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
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living, NodeFacts, StartAnswer, StartMode
from tests.parts.store.stored import ID, commit, new_store

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


class Deciding:
    """A controller that knows a session whose last checkpoint was committed unseen: what the node
    finds in the store decides."""

    def __init__(self):
        self.questions = []

    async def post(self, path, question, kind, timeout):
        self.questions.append(question)
        if question.checkpoints:
            return StartAnswer(StartMode.RESTORE, "to be restored", str(ID), 1, 0)
        if not question.facts.store_ok:
            return StartAnswer(StartMode.WAIT, "no committed checkpoint is known")
        return StartAnswer(StartMode.FRESH, "its session has no checkpoint")


def deciding(tmp_path, monkeypatch):
    one = starts(tmp_path, None)
    one._controller = Deciding()
    monkeypatch.setattr(Facts, "facts", lambda self: NodeFacts(store_ok=True))
    return one


def away(one, monkeypatch, times, question):
    """The store does not answer `question` so many times, and is well right afterwards."""
    real = getattr(one._store, question)
    left = [times]

    def ask(*args):
        left[0] -= 1
        if left[0] >= 0:
            raise StoreUnavailable("s3://bucket: could not list: SlowDown")
        return real(*args)

    monkeypatch.setattr(one._store, question, ask)


@pytest.mark.parametrize("question", ["of_job", "committed"])
async def test_a_store_that_did_not_answer_is_not_one_without_a_checkpoint(
    tmp_path, monkeypatch, question
):
    one = deciding(tmp_path, monkeypatch)
    away(one, monkeypatch, 1, question)
    with pytest.raises(StoreUnavailable, match="SlowDown"):
        await one.start({"job": "7", "uid": "2001"})
    (asked,) = one._controller.questions
    assert not asked.facts.store_ok
    assert "SlowDown" in asked.facts.store_problem
    assert (await one.start({"job": "7", "uid": "2001"}))["mode"] == "restore"


@pytest.mark.parametrize("question", ["of_job", "committed"])
async def test_a_restore_waits_for_a_store_that_does_not_answer(tmp_path, monkeypatch, question):
    one = deciding(tmp_path, monkeypatch)
    away(one, monkeypatch, 1, question)
    session = NodeSession(7, 2001, 2001, 1, "restore", Living.WAITING, init=os.getpid())
    session.init_start = tree.start_time(os.getpid())
    answer = await asyncio.wait_for(one._wait_for_answer(session), 10)
    assert answer is not None
    assert answer.mode is StartMode.RESTORE
    assert session.living is Living.WAITING


async def test_a_manifest_that_is_long_in_coming_holds_up_no_other_job(tmp_path, monkeypatch):
    one = deciding(tmp_path, monkeypatch)
    asked, there = threading.Event(), threading.Event()

    def read(*_):
        asked.set()
        there.wait(20)
        raise StoreUnavailable("s3://bucket did not answer in time")

    monkeypatch.setattr(one._store, "read", read)
    starting = asyncio.create_task(one.start({"job": "7", "uid": "2001"}))
    began = time.monotonic()
    while not asked.is_set():
        await asyncio.sleep(0.01)
    assert time.monotonic() - began < 10, "the loop stood still"
    there.set()
    assert (await starting)["mode"] == "restore"
