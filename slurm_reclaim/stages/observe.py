"""observe: Slurm's answer and the agents' reports become sessions and facts about them.

Adopts what agents manage and Slurm confirms. Nothing here ever ends a session: that needs a
positive answer about this one job (ending.py).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import replace

from slurm_reclaim.errors import BadRequest, Unavailable
from slurm_reclaim.model.blocker import Blocker, details
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.ids import SessionId, parse_session_id
from slurm_reclaim.model.job import Job
from slurm_reclaim.model.lifecycle import RUNNING_STATES, Fact, State
from slurm_reclaim.model.order import Living, Report, ReportReply, SessionReport
from slurm_reclaim.model.sample import GpuHeld
from slurm_reclaim.model.session import Progress, Seen, Session
from slurm_reclaim.model.words import clock
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.judge import clock_ahead, take_samples
from slurm_reclaim.stages.rebooted import take_seen
from slurm_reclaim.stages.results import take_result
from slurm_reclaim.stages.uploads import take_uploads
from slurm_reclaim.stages.view import same_job

log = logging.getLogger(__name__)

_FACTS = frozenset(fact.value for fact in Fact)


async def ask_slurm(desk: Desk) -> None:
    """The one query for the whole cluster; which nodes there are changes seldom and is asked now
    and then. Raises Unavailable, and then the view stays as it is: a failed query says nothing
    about any job (S4)."""
    asked = desk.clock.now()
    try:
        jobs = await desk.scheduler.jobs()
        if desk.view.wants_nodes(asked):
            desk.view.counted(asked, await desk.scheduler.nodes())
    except Unavailable as error:
        desk.view.problem = error.message
        raise
    desk.view.answered(asked, jobs)


def take_report(desk: Desk, report: Report) -> ReportReply:
    """What an agent says. What is acknowledged is in the journal."""
    desk.view.heard(report, desk.clock.now())
    acknowledged = []
    for result in report.results:
        take_result(desk, report.node, result)
        acknowledged.append(result.order)
    for event in report.events:
        if _its_own(desk, report.node, event):
            desk.journal.note(replace(event, node=report.node))
        else:
            log.info("%s told of job %s: %s; left aside", report.node, event.job_id, event.kind)
    names = {}
    for told in report.sessions:
        session = _session_of(desk, told)
        if session is None or session.node not in ("", report.node):
            continue
        if not told.session and _surely(desk, report, told, session):
            names[str(told.job_id)] = str(session.id)
        take_seen(desk, report, told, session)
        _take_blockers(desk, session, told)
        if told.samples:
            take_samples(desk, report, told, session)
            if desk.recorder is not None:
                desk.recorder(session, told.samples)
    # After the results: a checkpoint is known before it is known to be uploaded.
    uploads = take_uploads(desk, report)
    return ReportReply(tuple(acknowledged), names, len(report.events), uploads)


def _its_own(desk: Desk, node: str, event: Event) -> bool:
    """An agent tells what its node has seen: no transition, which the brake counts and people wait
    for, and nothing in the name of a session that another node has."""
    if event.kind in _FACTS:
        return False
    return all(
        session.id.uid == event.uid
        # Of one that sleeps any node may be the next, before we know.
        and (session.node in ("", node) or session.state in (State.HIBERNATED, State.QUEUED))
        for session in desk.of_job(event.job_id)
    )


def _take_blockers(desk: Desk, session: Session, told: SessionReport) -> None:
    """What its agent found by looking now and then, and what Slurm shows: known long before it
    matters."""
    if not told.looked or session.state is not State.ACTIVE or told.restarts != session.restarts:
        return
    found = (*told.blockers, *_of_job(desk.view.jobs.get(told.job_id)))
    names = tuple(map(str, found))
    if names == session.blockers:
        return
    desk.update(session.id, blockers=names)
    if names:
        desk.note(
            session.id,
            "not-hibernatable",
            f"can't be hibernated: {'; '.join(names)}",
            details(found),
        )
    else:
        desk.note(session.id, "hibernatable", "what stood in the way of a hibernation is gone")


def _of_job(job: Job | None) -> Iterator[Blocker]:
    """What no agent can see, for it knows its own node."""
    if job is not None and len(job.nodes) > 1:
        what = f"the job runs on {len(job.nodes)} nodes"
        yield Blocker("multi-node", what, "only sessions of one node can be saved")


def _surely(desk: Desk, report: Report, told: SessionReport, session: Session) -> bool:
    """Whether what runs there is this session: an agent keeps the name that it is given, and the
    number may be that of a new job of the same owner, whose old one is not ended here yet. Slurm
    says so in an answer from after it began."""
    job = desk.view.jobs.get(told.job_id)
    began = told.started - clock_ahead(report.at, desk.clock.now())
    return (
        job is not None and began < desk.view.asked and same_job(session.id, session.restarts, job)
    )


def adopt(desk: Desk) -> None:
    """Take in the sessions that agents manage and we don't know yet."""
    now, silent_after = desk.clock.now(), desk.settings.silent_after
    for node in list(desk.view.agents):
        heard = desk.view.fresh(node, now, silent_after)
        if heard is None:
            continue
        for told in heard.report.sessions:
            job = desk.view.jobs.get(told.job_id)
            if job is not None and _session_of(desk, told) is None:
                _adopt_one(desk, heard.report, told, job)


def _session_of(desk: Desk, told: SessionReport) -> Session | None:
    """The living session that a report speaks of, in whatever incarnation."""
    for session in desk.of_job(told.job_id):
        if session.id.uid != told.uid:
            continue
        if not told.session or told.session == str(session.id):
            return session
    return None


def _adopt_one(desk: Desk, report: Report, told: SessionReport, job: Job) -> None:
    # Slurm must show the same incarnation running, or the report is older or newer than the row.
    if not job.running or job.restarts != told.restarts or job.uid != told.uid:
        return
    node = report.node
    if node not in job.nodes:
        return
    if any(session.id.uid == told.uid for session in desk.of_job(told.job_id)):
        return
    id = _name(desk, told, job)
    if id is None or desk.journal.session(id) is not None:
        return
    checkpoint = told.checkpoint if told.session else -1
    state, reason = _as_found(told)
    desk.open(
        Session(
            id=id,
            user=job.user,
            name=job.name,
            account=job.account,
            partition=job.partition,
            qos=job.qos,
            state=state,
            reason=f"{reason} on {node}",
            since=desk.clock.now(),
            node=node,
            restarts=job.restarts,
            checkpoint=checkpoint,
            saved_on=node if checkpoint >= 0 else "",
            checkpoint_bytes=told.checkpoint_bytes if checkpoint >= 0 else 0,
            tres=job.tres,
            array_job_id=job.array_job_id if job.array_task is not None else 0,
            array_task=job.array_task,
            blockers=tuple(map(str, told.blockers)),
            needs=told.needs,
            freed_gpu=told.needs.vram if told.needs is not None and checkpoint >= 0 else 0,
            started=min(told.started or math.inf, desk.clock.now()),
            seen=Seen(node, told.restarts, report.boot_id),
        ),
        "adopted",
    )


def _name(desk: Desk, told: SessionReport, job: Job) -> SessionId | None:
    """The name its agent knows, which a journal that was lost does not, or a new one."""
    if not told.session:
        return SessionId(desk.settings.cluster, job.job_id, job.uid, job.submitted)
    try:
        id = parse_session_id(told.session)
    except BadRequest:
        return None
    same = id.cluster == desk.settings.cluster and id.job_id == job.job_id
    return id if same and same_job(id, told.restarts, job) else None


def _as_found(told: SessionReport) -> tuple[State, str]:
    if told.living is Living.COMMITTED and told.session and told.checkpoint == told.restarts:
        return State.REQUEUING, "found with a committed checkpoint"
    if told.living in (Living.WAITING, Living.RESTORING, Living.RESTORE_FAILED) and told.session:
        return State.RESTORING, "found waiting for its restore"
    return State.ACTIVE, "found running"


def gpus(desk: Desk, session: Session) -> tuple[GpuHeld, ...]:
    """Those that it holds, as its agent last told; none while it is its checkpoint."""
    found = desk.view.report_of(session) if session.state in RUNNING_STATES else None
    return found[2].gpus if found is not None else ()


def progress(desk: Desk, session: Session) -> Progress:
    """Long work as its agent last told it, or what Slurm waits for before it starts the job;
    nothing where none is going on."""
    if session.state is State.QUEUED:
        return _queued(desk, desk.view.jobs.get(session.id.job_id))
    found = desk.view.report_of(session)
    return found[2].progress if found is not None else Progress()


def _queued(desk: Desk, job: Job | None) -> Progress:
    if job is None or not job.waiting or job.held or not job.reason:
        return Progress()
    expected = f", start expected {clock(job.started)}" if job.started > desk.clock.now() else ""
    return Progress(f"Slurm waits: {job.reason}{expected}", at=desk.view.asked)
