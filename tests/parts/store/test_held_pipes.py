"""The programs that save a session's files run as its owner, who can hold their pipes open."""

import os
import signal
import subprocess
import threading
import time

import pytest

from slurm_reclaim.adapters.criu.program import Finished
from slurm_reclaim.adapters.criu.surroundings import FILES, Surroundings
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.store import staging
from slurm_reclaim.config.schema import Agent
from slurm_reclaim.errors import DumpFailed, StoreUnavailable
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living
from tests.parts.store.test_contents import Shop, write_all
from tests.parts.store.world import ID

ENOUGH = 20.0  # seconds in which something must have come to an end


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


@pytest.fixture
def holders():
    """Processes that hold a pipe open until they are killed."""
    started = []

    def hold(pipe):
        started.append(subprocess.Popen(["sleep", "600"], stdout=pipe))

    yield hold
    for one in started:
        one.kill()
        one.wait()


def within(work):
    """What `work` raises; it must come to an end."""
    raised = []

    def run():
        try:
            work()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(ENOUGH)
    assert not thread.is_alive(), "it waits without end"
    return raised[0] if raised else None


def test_a_pipe_that_is_held_open_ends_the_dump(shop, holders, monkeypatch):
    monkeypatch.setattr(staging, "PATIENCE", 0.5)
    staged = shop.begin()

    def save():
        with staged.receive(FILES) as pipe:
            holders(pipe)
            write_all(pipe, b"all of it")

    try:
        error = within(save)
    finally:
        staged.close()
    assert isinstance(error, StoreUnavailable)
    assert FILES in error.message
    assert "open" in error.message


class Stopped(Surroundings):
    """tar was stopped by its owner, and the shell that waited for it was killed for its time."""

    def __init__(self, hold):
        session = NodeSession(7, os.getuid(), os.getgid(), 0, "fresh", Living.RUNNING)
        session.init = session.relay = os.getpid()
        super().__init__(session, Agent())
        self.hold = hold

    def _as_owner(self, owner, words, timeout, stdin=None, stdout=None):
        self.hold(stdout)
        return Finished(-9, "", late=True)


def test_a_program_that_failed_is_not_waited_for(shop, holders):
    staged = shop.begin()
    try:
        error = within(lambda: Stopped(holders).save(staged, tree.read(os.getpid())))
    finally:
        staged.close()
    assert isinstance(error, DumpFailed)


def test_a_store_that_does_not_answer_is_not_waited_for_without_end(shop, monkeypatch):
    """A file server that is gone: a session would stay frozen, an allocation without a session."""
    monkeypatch.setattr(staging, "STORE_PATIENCE", 0.5)
    shop.put(0, {FILES: b"all of it"})
    staged, late = shop.begin(1), shop.store.open(ID, 0)
    late.ready()
    early = shop.store.open(ID, 0)
    try:
        for program in (early, late, staged):
            program._child.send_signal(signal.SIGSTOP)
        for work in (staged.finish, early.ready):
            error = within(work)
            assert isinstance(error, StoreUnavailable)
            assert "has not answered" in error.message
        said = []
        assert within(lambda: said.append(late.trouble())) is None
        assert "has not answered" in said[0]
    finally:
        for program in (staged, early, late):
            program.close()


def descriptors():
    return {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
            if os.path.lexists(f"/proc/self/fd/{fd}")}  # fmt: skip


def test_a_program_that_is_gone_costs_no_descriptor(shop):
    shop.put(0, {FILES: b"all of it"})
    staged, opened = shop.begin(1), shop.store.open(ID, 0)
    opened.ready()
    for program in (staged, opened):
        program.cut()
        program._child.wait()
    before = descriptors()
    for _ in range(3):
        with pytest.raises(StoreUnavailable), staged.receive(FILES):
            pass
        with pytest.raises(StoreUnavailable), opened.send(FILES):
            pass
    assert descriptors().keys() == before.keys()
    staged.close()
    opened.close()


def test_nothing_is_left_of_a_program_that_does_not_start(shop, monkeypatch):
    shop.put(0, {FILES: b"all of it"})
    before, threads = descriptors(), threading.active_count()
    monkeypatch.setattr(staging.sys, "executable", "/nonexistent/python")
    for begin in (lambda: shop.begin(1), lambda: shop.store.open(ID, 0)):
        with pytest.raises(StoreUnavailable, match=r"can't be started in .*/work/"):
            begin()
    monkeypatch.undo()
    assert not shop.store.staging(ID, 1).exists()
    assert not (shop.store._work / ID.folder).exists()
    assert descriptors().keys() == before.keys()
    deadline = time.monotonic() + ENOUGH
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == threads
    assert shop.get(0, FILES) == b"all of it"
