"""start: a job that has an image starts on a node, whose agent asks what shall become of it.

FRESH is answered only where the job is positively another one; what is not known is WAIT (S10).
"""

from __future__ import annotations

import re

from slurm_reclaim.errors import BadRequest, Unavailable
from slurm_reclaim.model.ids import parse_session_id
from slurm_reclaim.model.job import Job, JobDetail
from slurm_reclaim.model.lifecycle import TABLE, Fact, State
from slurm_reclaim.model.order import StartAnswer, StartMode, StartQuestion
from slurm_reclaim.model.session import Seen, Session
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.ending import count_on, detail_of, end, lift_fence, older_incarnations
from slurm_reclaim.stages.fit import lacking, only_there
from slurm_reclaim.stages.hold import started
from slurm_reclaim.stages.uploads import only_node
from slurm_reclaim.stages.view import same_job

_NUMBER = re.compile(r"[0-9]{1,9}")
_AWAITED = frozenset({State.HIBERNATED, State.QUEUED, State.RESTORING})


async def answer(desk: Desk, question: StartQuestion) -> StartAnswer:
    """Raises nothing for what Slurm does not answer: that is WAIT. Asked at every job start, so
    Slurm is not asked about jobs that we never had."""
    if not question.checkpoints and not _ours(desk, question):
        return StartAnswer(StartMode.FRESH, "there is no session of this job")
    try:
        session, detail = await _looked_up(desk, question)
    except Unavailable as error:
        return _wait(f"Slurm can't be asked about the job: {error.message}")
    if detail is None or detail.job.uid != question.uid:
        return _wait("Slurm does not show this job for this user")
    if session is None:
        return _without_session(desk, question, detail)
    if not same_job(session.id, session.restarts, detail.job):
        if detail.job.restarts == 0:
            return StartAnswer(StartMode.FRESH, "the image is of an earlier job of this number")
        return _wait("Slurm shows an older run of the job than we know of")
    async with desk.lock(session.id):
        current = desk.sessions.get(session.id)
        if current is None:
            return _wait("the session has just ended")
        if not same_job(current.id, current.restarts, detail.job):
            return _wait("the job has moved on while Slurm was asked")  # by whom we waited for
        return _for_session(desk, current, question, detail)


async def _looked_up(
    desk: Desk, question: StartQuestion
) -> tuple[Session | None, JobDetail | None]:
    session = next((s for s in desk.of_job(question.job_id) if s.id.uid == question.uid), None)
    if session is None:
        return None, await desk.scheduler.detail(question.job_id)
    detail = await detail_of(desk, session)
    return desk.sessions.get(session.id), detail


def _ours(desk: Desk, question: StartQuestion) -> bool:
    return any(s.id.uid == question.uid for s in desk.of_job(question.job_id))


def _for_session(
    desk: Desk, session: Session, question: StartQuestion, detail: JobDetail
) -> StartAnswer:
    job = detail.job
    if not job.running or question.node not in job.nodes:
        return _wait(f"Slurm does not show the job running on {question.node} yet")
    if session.state not in _AWAITED and job.restarts == session.restarts:
        session, job = _started_anew(desk, session, job)
    if job.restarts > session.restarts and session.state not in _AWAITED:
        session = _caught_up(desk, session, question, job.restarts)
    if session.state not in _AWAITED:
        return _wait(f"the session is {session.state}")
    newest = max([session.checkpoint, *_numbers(question, session)])
    if newest < 0 and not question.facts.store_ok:
        return _wait("no committed checkpoint is known")
    if newest < 0:
        # The store is the right one, by its marker, and there is none: S10 has nothing to keep.
        end(desk, session, "there was no checkpoint; the job starts over")
        return StartAnswer(StartMode.FRESH, "its session has no checkpoint")
    if newest > session.checkpoint:
        # Committed unseen. Whoever found it can restore it: it is there, or at the remote place.
        session = desk.update(session.id, checkpoint=newest, saved_on=question.node)
    session = lift_fence(desk, session)
    if older := older_incarnations(desk, session):
        node, restarts, living = older[0]
        return _wait(f"restart {restarts} is still {living} on {node}")
    if session.fence:
        return _wait(f"{session.fence} was lost and may still run the session")
    if (only := only_node(desk, session)) and only != question.node:
        return _wait(f"{question.node} can't restore it: {only_there(only)}")
    if problem := lacking(session.needs, question.facts):
        return _wait(f"{question.node} can't restore it: {problem}")
    if session.state is not State.RESTORING:
        session = started(desk, session, job)
    elif session.node != question.node or session.restarts != job.restarts:
        session = desk.update(session.id, node=question.node, restarts=job.restarts)
    desk.update(session.id, seen=Seen(question.node, job.restarts, question.boot_id))
    # From here on the agent may have brought it to life: silence no longer means that it has not.
    if not restore_ordered(desk, session):
        desk.journal.intend(session.id, "restore", str(job.restarts))
    return StartAnswer(
        StartMode.RESTORE,
        "its session is to be restored",
        str(session.id),
        job.restarts,
        session.checkpoint,
        session.accepted,
    )


def _started_anew(desk: Desk, session: Session, job: Job) -> tuple[Session, Job]:
    """A slurmctld that went back to before the job started may have started it again already,
    under the number of the run that we know. Our count goes on."""
    if not session.started or job.started <= session.started:
        return session, job
    if job.started > desk.clock.now():
        return session, job  # the clock was put back: which one was first can't be told
    reason = (
        f"Slurm started run {job.restarts} of the job a second time: slurmctld had forgotten it"
    )
    desk.note(session.id, "slurm-set-back", reason)
    return count_on(desk, session, job)


def _caught_up(desk: Desk, session: Session, question: StartQuestion, restarts: int) -> Session:
    """The job was requeued and started again between two looks at Slurm."""
    if session.state is State.REQUEUING:
        desk.settle(session.id, "requeue", "observed: started again already")
        return desk.apply(
            session.id,
            Fact.REQUEUE_OBSERVED,
            "the job was requeued and has started again",
            restarts=restarts,
        )
    if (session.state, Fact.NODE_LOST) not in TABLE:
        return session
    # Its last checkpoint may have been committed unseen, right before the node was lost.
    if session.checkpoint < 0 and not _numbers(question, session):
        return session
    desk.drop_orders(session.id, "the incarnation was lost")
    return desk.apply(
        session.id,
        Fact.NODE_LOST,
        "the job was requeued by Slurm; it goes back to its last checkpoint",
        restarts=restarts,
        fence=session.node,
    )


def _numbers(question: StartQuestion, session: Session) -> list[int]:
    """The committed checkpoints of this session that the agent found in the store, from
    `session id/restart count`."""
    found = [name.removeprefix(f"{session.id}/") for name in question.checkpoints]
    return [int(number) for number in found if _NUMBER.fullmatch(number)]


def restore_ordered(desk: Desk, session: Session) -> bool:
    """Whether an agent was told to restore this incarnation and has not said how it went."""
    return any(
        what == "restore" and details == str(session.restarts)
        for _, _, what, details in desk.journal.unsettled(session.id)
    )


def _without_session(desk: Desk, question: StartQuestion, detail: JobDetail) -> StartAnswer:
    """No living session of this job: another job, or a journal that was lost."""
    known = {str(s.id) for s in desk.journal.of_job(question.job_id) if s.id.uid == question.uid}
    names = {_session_name(text) for text in question.checkpoints}
    if names <= known:
        return StartAnswer(StartMode.FRESH, "the session of this image has ended")
    for name in sorted(names - known):
        try:
            id = parse_session_id(name)
        except BadRequest:
            return _wait(f"{name!r} is not the name of a session")
        if same_job(id, 0, detail.job):
            return _wait(f"the journal does not know {name}, which may be this job's session")
    return StartAnswer(StartMode.FRESH, "the image is of an earlier job of this number")


def _session_name(text: str) -> str:
    """Without the number of the checkpoint, where there is one."""
    head, _, last = text.rpartition("/")
    return head if last.isdigit() else text


def _wait(reason: str) -> StartAnswer:
    return StartAnswer(StartMode.WAIT, reason)
