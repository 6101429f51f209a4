"""A restore whose agent died before it had seen the end of it: is the tree as it was?"""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from slurm_reclaim.adapters.criu.tree import SessionTree
from slurm_reclaim.adapters.proc import rights, tree
from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.checkpoint import Needs
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living


@pytest.fixture
def session():
    mine = os.getpid()
    return NodeSession(7, 2001, 2001, 1, "restore", Living.RESTORING, init=mine, relay=mine)


@pytest.fixture
def restored(session, monkeypatch):
    """This very process stands for the tree."""
    one = SessionTree(
        session, Config(), "n1", lambda pid: None, lambda: None, lambda: None
    )  # fmt: skip
    me = tree.read(os.getpid())
    monkeypatch.setattr(one, "_members", lambda: [me])
    one.me, one.held = me, rights.of_tree([me])
    return one


def manifest(restored, **changes):
    held = {thread: replace(one, **changes) for thread, one in restored.held.items()}
    return SimpleNamespace(
        processes=1,
        root_pid=restored.me.inner,
        needs=Needs("x86_64", "6", "4.2.1", 310, 1000),
        rights=rights.grouped(held),
    )


def test_it_is_where_all_are_there_with_the_rights_they_had(restored):
    assert restored.whole(manifest(restored))


def test_it_is_not_where_somebody_has_more_rights_than_before(restored):
    assert not restored.whole(manifest(restored, uids=(2001,) * 4))


def test_it_is_not_where_something_was_still_to_be_done(restored, session):
    """A connection that was shut in one direction is restored open, and shut then."""
    session.unfinished = True
    assert not restored.whole(manifest(restored))
