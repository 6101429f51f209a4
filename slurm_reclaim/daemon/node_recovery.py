"""An agent started anew finds sessions it had in hand: it looks at the world and goes on (S7)."""

from __future__ import annotations

import os
import signal
import time

from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon.node_sessions import NodeSessions
from slurm_reclaim.errors import ReclaimError, Unavailable
from slurm_reclaim.model.ids import parse_session_id
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living
from slurm_reclaim.ports import Clock, NodeStore
from slurm_reclaim.stages import node_hibernate


def recover(
    session: NodeSession,
    sessions: NodeSessions,
    store: NodeStore,
    clock: Clock,
    config: Config,
) -> str:
    """Wait for a CRIU that is still at work (killing it could take the tree with it), then see
    what became of the session. Returns the sentence for the event log; blocking."""
    _wait_for_worker(session, config)
    tree_of, link = sessions.tree(session), sessions.link(session)
    if session.living is Living.DUMPING:
        return node_hibernate.recover(session, tree_of, link, store, clock, sessions.save)
    return _after_restore(session, sessions, store)


def _wait_for_worker(session: NodeSession, config: Config) -> None:
    dumping = session.living is Living.DUMPING
    limit = config.agent.dump_timeout if dumping else config.agent.restore_timeout
    deadline = time.monotonic() + limit
    while tree.same_process(session.worker, session.worker_start):
        if time.monotonic() > deadline:
            os.kill(session.worker, signal.SIGKILL)
        time.sleep(0.2)
    session.worker = session.worker_start = 0


def _after_restore(session: NodeSession, sessions: NodeSessions, store: NodeStore) -> str:
    """A restore that nobody watched to its end is undone: the image is untouched, and a tree that
    is not whole must not go on. Raises Unavailable where that can't be told yet, for its owner may
    be at work in it again, and IntegrityError where the image is not to be believed: then the tree
    is all there is (S1)."""
    link, tree_of = sessions.link(session), sessions.tree(session)
    begun = any(process.state not in "ZX" for process in tree.members(session.init))
    id = parse_session_id(session.session)
    manifest = store.read(id, session.checkpoint) if begun else None
    try:
        if manifest is not None and tree_of.whole(manifest):
            link.adopt_root(manifest.root_pid)
            session.root, session.held, session.restored = manifest.root_pid, False, True
            session.living, session.reason = Living.RUNNING, ""
            sessions.save(session)
            return "the agent was restarted during the restore, which had succeeded"
    except Unavailable:
        raise
    except ReclaimError:
        pass
    tree_of.kill()
    session.living = Living.RESTORE_FAILED
    session.reason = "the agent was restarted during the restore"
    sessions.save(session)
    return session.reason
