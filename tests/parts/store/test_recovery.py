"""Sessions that were left half done are looked at until it is known what became of them."""

import asyncio
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.store.records import SessionRecords
from slurm_reclaim.config.schema import Agent, Config
from slurm_reclaim.daemon import node_starts
from slurm_reclaim.daemon.node_samples import NodeSamples
from slurm_reclaim.daemon.node_sessions import NodeSessions
from slurm_reclaim.daemon.node_starts import NodeStarts
from slurm_reclaim.errors import AgentUnavailable, StoreUnavailable
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living
from slurm_reclaim.stages.node_record import save_if_possible
from tests.parts.store.stored import ID, commit, new_store


class Clock:
    def now(self):
        return time.time()


class Away:
    """The store, whose file server is away for the first `times` questions."""

    def __init__(self, store, times):
        self._store, self.left = store, times
        self.manifest = {}  # what is another one in it

    def committed_here(self, *words):
        self.left -= 1
        if self.left >= 0:
            raise StoreUnavailable("store: Stale file handle")
        return self._store.committed_here(*words)

    def read(self, *words):
        self.left -= 1
        if self.left >= 0:
            raise StoreUnavailable("store: Stale file handle")
        return replace(self._store.read(*words), **self.manifest)

    def __getattr__(self, name):
        return getattr(self._store, name)


class Link:
    closed = False

    def __init__(self):
        self.said = []
        self.refuses = False

    def adopt_root(self, pid):
        self.said.append(pid)

    def unhold(self):
        self.said.append("unhold")
        if self.refuses:
            raise AgentUnavailable("reclaim-init does not answer")


class Node:
    def __init__(self, place, init):
        self.init = init
        self.config = replace(Config(), agent=Agent(state=str(place / "state"), run=str(place)))
        records = SessionRecords(place / "records")
        self.sessions = NodeSessions(
            self.config, "n1", records, NodeSamples(lambda: self.config)
        )  # fmt: skip
        self.store = Away(new_store(place), 0)
        self.starts = NodeStarts(
            lambda: self.config, self.sessions, self.store, None, None, Clock()
        )  # fmt: skip
        self.link = Link()

    def has(self, living, **more):
        """A session with this reclaim-init."""
        session = NodeSession(
            7, 2001, 2001, 0, "fresh", living, init=self.init, session=str(ID),
            init_start=tree.start_time(self.init), **more,
        )  # fmt: skip
        self.sessions.sessions[7] = session
        return session

    async def attaches(self, held="0"):
        hello = {"op": "attach", "job": "7", "uid": "2001", "relay": str(self.init), "held": held}
        await self.starts.attach(hello, self.init, self.link)


@pytest.fixture
def frozen():
    """(PID of a namespace's first process, of a stopped one in it)."""
    words = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "sleep 60 & echo; wait"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as shell:
        shell.stdout.readline()
        children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text()
        (init,) = map(int, children.split())
        (inside,) = tree.members(init)
        os.kill(inside.pid, signal.SIGSTOP)
        yield init, inside.pid
        shell.kill()


@pytest.fixture
def node(tmp_path, frozen, monkeypatch):
    monkeypatch.chdir(tmp_path)  # nothing here may be about another directory
    monkeypatch.setattr(node_starts, "RECOVERY_PAUSE", 0.01)
    return Node(tmp_path, frozen[0])


async def until(seen):
    deadline = time.monotonic() + 10
    while not seen():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.01)


async def test_a_tree_is_given_back_when_the_store_is_there_again(node, frozen):
    """Whether its checkpoint was committed could not be told before."""
    node.store.left = 3
    session = node.has(Living.DUMPING)
    await node.attaches()
    await until(lambda: session.living is Living.RUNNING)
    assert tree.read(frozen[1]).state not in "Tt"
    await until(lambda: 7 not in node.sessions.busy)


async def test_nobody_waits_for_a_session_that_has_ended(node):
    node.store.left = 10**6
    session = node.has(Living.DUMPING)
    await node.attaches()
    await until(lambda: node.store.left < 10**6)
    node.sessions.forget(session, "the job ended")
    await until(lambda: 7 not in node.sessions.busy)
    assert session.living is Living.DUMPING


async def test_what_could_not_be_undone_is_looked_at_anew(node, frozen):
    """By the agent that could not do it, too, and not only by the next."""
    session = node.has(Living.DUMPING)
    node.starts.look_after(session)
    await until(lambda: session.living is Living.RUNNING)
    assert tree.read(frozen[1]).state not in "Tt"


async def test_a_hold_is_lifted_when_its_reclaim_init_is_there_again(node):
    """A session that runs is not to keep its job when it has ended."""
    session = node.has(Living.RUNNING, held=True)
    node.link.refuses = True
    await node.attaches(held="1")
    await until(lambda: node.link.said)
    await asyncio.sleep(0.1)
    assert session.held
    node.link.refuses = False
    await node.attaches(held="1")
    await until(lambda: not session.held)


async def test_one_that_is_saved_stays_held(node):
    session = node.has(Living.COMMITTED, held=True, checkpoint=0)
    await node.attaches(held="1")
    await asyncio.sleep(0.2)
    assert (session.held, node.link.said) == (True, [])


async def test_a_restored_tree_lives_on_when_the_store_is_there_again(node, frozen):
    """Its agent died before it could say that it was restored, and the next has no store yet."""
    commit(node.store._store, 0)
    inner = tree.read(frozen[1]).inner
    node.store.left, node.store.manifest = 3, {"root_pid": inner, "processes": 1}
    session = node.has(Living.RESTORING, checkpoint=0)
    await node.attaches()
    await until(lambda: session.living is not Living.RESTORING)
    assert (session.living, session.root, node.link.said) == (Living.RUNNING, inner, [inner])
    assert tree.read(frozen[1]) is not None


async def test_what_is_not_whole_is_gone(node, frozen):
    commit(node.store._store, 0)
    session = node.has(Living.RESTORING, checkpoint=0)
    await node.attaches()
    await until(lambda: session.living is Living.RESTORE_FAILED)
    left = tree.read(frozen[1])
    assert left is None or left.state in "ZX"


async def test_a_tree_whose_image_is_not_to_be_believed_is_all_there_is(node, frozen):
    commit(node.store._store, 0)
    (node.store._store.checkpoint_dir(ID, 0) / "manifest.json").write_bytes(b"{}")
    session = node.has(Living.RESTORING, checkpoint=0)
    await node.attaches()
    await asyncio.sleep(0.3)
    assert session.living is Living.RESTORING
    assert tree.read(frozen[1]).state not in "ZX"
    node.sessions.forget(session, "the job ended")
    await until(lambda: 7 not in node.sessions.busy)


async def test_a_restore_that_had_not_begun_waits_for_nothing(node):
    with subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "sleep", "60"]) as shell:
        children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children")
        await until(children.read_text)
        node.init = int(children.read_text())
        node.store.left = 10**6
        session = node.has(Living.RESTORING)
        await node.attaches()
        await until(lambda: session.living is Living.RESTORE_FAILED)
        shell.kill()


def test_what_could_not_be_written_down_is_written_down_later(node):
    """A full disk, at the end of a restore: with what stands in the record the next agent would
    take the session, long at work again, for one that came back in part."""
    session = node.has(Living.RESTORING)
    node.sessions.save(session)
    full = [True]
    real = node.sessions._records.save

    def save(one):
        if full[0]:
            raise StoreUnavailable("records/7.json: No space left on device")
        real(one)

    node.sessions._records.save = save
    session.living = Living.RUNNING
    save_if_possible(session, node.sessions.save)
    node.sessions.sweep()
    assert [one.living for one in node.sessions._records.load()] == [Living.RESTORING]
    full[0] = False
    node.sessions.sweep()
    assert [one.living for one in node.sessions._records.load()] == [Living.RUNNING]
