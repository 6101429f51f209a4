"""Checkpoints that only their own node has: where a session can be restored meanwhile.

What is not positively known to be uploaded is not (S4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from slurm_reclaim.errors import BadRequest
from slurm_reclaim.model.catalogue import StoredCheckpoint, StoredSession
from slurm_reclaim.model.ids import parse_session_id
from slurm_reclaim.model.order import Report
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.upload import Upload, UploadState
from slurm_reclaim.stages.desk import Desk

# (session as text, restart count) -> the node that has, or may have, the only copy.
Waiting = dict[tuple[str, int], str]


def take_uploads(desk: Desk, report: Report) -> tuple[Upload, ...]:
    """Those of which the agent need not tell again: what they mean is in the journal."""
    return tuple(told for told in report.uploads or () if _taken(desk, report.node, told))


def _taken(desk: Desk, node: str, told: Upload) -> bool:
    try:
        session = desk.sessions.get(parse_session_id(told.session))
    except BadRequest:
        return True
    if session is None or told.restarts < session.checkpoint:
        return told.state is not UploadState.PENDING  # of the past
    if told.restarts > session.checkpoint or _saved_on(session) != node:
        return session.uploaded == told.restarts  # its commit is not known yet
    if told.state is UploadState.PENDING:
        if session.uploaded == told.restarts:
            desk.update(session.id, uploaded=-1)
        return False
    if session.uploaded != told.restarts:
        desk.update(session.id, uploaded=told.restarts)
        if told.state is UploadState.UPLOADED:
            desk.note(
                session.id,
                "checkpoint-uploaded",
                f"the checkpoint of restart {told.restarts} is uploaded: it can be restored on "
                "other nodes, too",
                {"node": node},
            )
    return True


def only_node(desk: Desk, session: Session) -> str:
    """The node that has the only copy of its checkpoint, or may have; "" where any can restore
    it."""
    if session.checkpoint < 0 or session.uploaded == session.checkpoint:
        return ""
    store, node = desk.settings.config.store, _saved_on(session)
    if store.remote and store.upload == "after":
        return node
    heard = desk.view.agents.get(node)
    uploads = heard.report.uploads or () if heard is not None else ()
    waits = Upload(str(session.id), session.checkpoint, UploadState.PENDING)
    return node if waits in uploads else ""


def _saved_on(session: Session) -> str:
    """Not where its job is by now; from before an upgrade no more is known than that."""
    return session.saved_on or session.node


def waiting(desk: Desk) -> Waiting:
    """Checkpoints that the store may not have yet, by what their nodes said last, and by what is
    known of living sessions where these are silent."""
    found: Waiting = {}
    for node, heard in desk.view.agents.items():
        for told in heard.report.uploads or ():
            if told.state is UploadState.PENDING and _is_name(told.session):
                found[told.session, told.restarts] = node
    for session in desk.sessions.values():
        if node := only_node(desk, session):
            found[str(session.id), session.checkpoint] = node
    return found


def _is_name(session: str) -> bool:
    """One agent that tells nonsense must not take everybody's catalogue away."""
    try:
        parse_session_id(session)
    except BadRequest:
        return False
    return True


def with_waiting(
    stored: Iterable[StoredSession], waiting: Mapping[tuple[str, int], str]
) -> dict[str, StoredSession]:
    """By name, with the checkpoints that wait for their upload among those that are in the store.
    What the store has does not wait, whatever was said before it was looked into. Pure."""
    found = {session.session: session for session in stored}
    for (name, restarts), node in waiting.items():
        session = found.get(name, StoredSession(name))
        if restarts not in (each.restarts for each in session.checkpoints):
            more = StoredCheckpoint(restarts, node=node, only=node)
            every = sorted((*session.checkpoints, more), key=lambda each: each.restarts)
            found[name] = replace(session, checkpoints=tuple(every))
    return found
