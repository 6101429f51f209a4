"""Checkpoints that only their own node has: where a session can be restored meanwhile.

What is not positively known to be uploaded is not (S4).
"""

from __future__ import annotations

from slurm_reclaim.errors import BadRequest
from slurm_reclaim.model.ids import parse_session_id
from slurm_reclaim.model.order import Report
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.upload import Upload, UploadState
from slurm_reclaim.stages.desk import Desk


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
    if told.restarts > session.checkpoint or session.node != node:
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
    store = desk.settings.config.store
    if store.remote and store.upload == "after":
        return session.node
    heard = desk.view.agents.get(session.node)
    uploads = heard.report.uploads or () if heard is not None else ()
    waits = Upload(str(session.id), session.checkpoint, UploadState.PENDING)
    return session.node if waits in uploads else ""
