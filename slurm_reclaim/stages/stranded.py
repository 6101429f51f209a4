"""Hibernated sessions that no node can restore any more: after an upgrade of a driver, mostly.

A node that is only in trouble (store not mounted, NVML silent) or silent is none of these: it may
come back as it was. What a silent one last said of itself counts.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from slurm_reclaim.model.job import Job
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.notice import NoticeKind
from slurm_reclaim.model.session import Session, Unfit
from slurm_reclaim.stages import tell
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.fit import stranded

# Nodes that are upgraded one after the other are between two states for a while, and an agent that
# was just started may not know its GPUs yet.
TELL_AFTER = 900.0  # seconds
_MOST_NAMED = 5


def mark(desk: Desk, session: Session, job: Job) -> Session:
    """Write down that no node fits, or that one does again."""
    now, silent_after = desk.clock.now(), desk.settings.silent_after
    why = stranded(session.needs, job.partition, desk.view, now, silent_after)
    known = session.unfit
    if why is None:
        return session
    if not why:
        if known is None:
            return session
        if known.told:
            desk.note(session.id, "restorable-again", "a node can restore it again")
        return desk.update(session.id, unfit=None)
    if known is None:
        return desk.update(session.id, unfit=Unfit(desk.clock.now(), why))
    if known.reason != why:
        return desk.update(session.id, unfit=replace(known, reason=why))
    return session


def watch(desk: Desk) -> None:
    """Tell the owners, each once, and the admins of all of them at once."""
    now = desk.clock.now()
    due = [
        session
        for session in desk.sessions.values()
        if session.state is State.HIBERNATED
        and session.unfit is not None
        and not session.unfit.told
        and not 0 <= now - session.unfit.since < TELL_AFTER
    ]
    for session in due:
        _tell_owner(desk, session)
    if due:
        tell.send_admins(desk, _for_admins(due), NoticeKind.STRANDED)


def _tell_owner(desk: Desk, session: Session) -> None:
    unfit = session.unfit
    assert unfit is not None
    # First: told twice is worse than not at all, and it stands in `reclaim list` anyway.
    session = desk.update(session.id, unfit=replace(unfit, told=True))
    desk.note(session.id, "unrestorable", f"no node can restore it: {unfit.reason}")
    id = secrets.token_hex(8)
    notice = tell.notice_of(desk, session, NoticeKind.UNRESTORABLE, unfit.reason, id)
    tell.send(desk, session, notice, terminals=False)


def _for_admins(due: list[Session]) -> str:
    named = [
        f"job {session.job} ({session.user}): {session.unfit.reason}"
        for session in due[:_MOST_NAMED]
        if session.unfit is not None
    ]
    if len(due) > _MOST_NAMED:
        named.append(f"and {len(due) - _MOST_NAMED} more")
    count = f"{len(due)} hibernated session{'s' if len(due) > 1 else ''}"
    return f"{count} can't be restored by any node: {'; '.join(named)}"
