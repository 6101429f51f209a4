"""What users ask for: owners of their own sessions, operators and root of all, nobody else."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from slurm_reclaim.errors import BadRequest, NotManaged, NotPermitted, Unavailable, WrongState
from slurm_reclaim.model.caller import Caller
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.explanation import Explanation
from slurm_reclaim.model.ids import JobRef, parse_job_ref
from slurm_reclaim.model.lifecycle import RUNNING_STATES, Fact, State
from slurm_reclaim.model.printable import line
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.words import clock, span
from slurm_reclaim.stages import hibernate, judge, release, room, warn
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.explain import explanation
from slurm_reclaim.stages.observe import gpus, progress

MOST_EVENTS = 10_000
MOST_FILES = 1000
LONGEST_REASON = 500  # characters; it stands in lists, in orders and in the journal
MOST_ENDED = 5000  # sessions that have ended in one answer: the journal keeps them for ever


async def sessions(desk: Desk, caller: Caller, *, ended: bool = False) -> list[Session]:
    """With `ended` the last MOST_ENDED that have ended, too."""
    uid = None if await sees_all(desk, caller) else caller.uid
    found = {}
    if ended:
        past = await asyncio.to_thread(desk.journal.ended, uid=uid, limit=MOST_ENDED)
        found = {session.id: session for session in past}
    for session in desk.sessions.values():
        if uid is None or session.id.uid == uid:
            found[session.id] = _as_told(desk, session)
    return list(found.values())


async def session(desk: Desk, caller: Caller, text: str) -> Session:
    return _as_told(desk, await _find(desk, caller, parse_job_ref(text)))


async def ask_hibernate(desk: Desk, caller: Caller, text: str, reason: str) -> Session:
    found = await _find(desk, caller, parse_job_ref(text))
    async with desk.lock(found.id):
        # Read again: it may have moved on while we waited for our turn.
        current = desk.sessions.get(found.id, found)
        why = line(reason, LONGEST_REASON) or f"asked by {caller}"
        return _as_told(desk, await hibernate.hibernate(desk, current, why))


async def keep(desk: Desk, caller: Caller, text: str, seconds: float) -> Session:
    """The owner's answer to a warning, or before one: not to be hibernated for a while. Until the
    commit it stops a hibernation under way (S5). Raises BadRequest, WrongState."""
    idle = desk.settings.config.idle
    seconds = seconds or idle.keep
    if not 1 <= seconds <= idle.keep_most:
        raise BadRequest(
            f"a session can be kept for one second up to {span(idle.keep_most)} (idle.keep_most)"
        )
    found = await _find(desk, caller, parse_job_ref(text))
    current = desk.sessions.get(found.id, found)
    if current.state is State.HIBERNATING:
        # Not behind the lock: what holds it may be waiting for what this is to stop.
        return hibernate.stop(desk, current, _kept(desk, current, caller, seconds))
    async with desk.lock(found.id):
        current = desk.sessions.get(found.id, found)
        if current.state is State.HIBERNATING:
            return hibernate.stop(desk, current, _kept(desk, current, caller, seconds))
        if current.state not in RUNNING_STATES:
            raise hibernate.wrong_state(current, "kept")
        reason = _kept(desk, current, caller, seconds)
        current = desk.sessions[found.id]
        if current.state is not State.ACTIVE:
            return await warn.back(desk, current, Fact.ACTIVITY_SEEN, reason)
        return current


def _kept(desk: Desk, session: Session, caller: Caller, seconds: float) -> str:
    until = desk.clock.now() + seconds
    reason = f"kept by {caller} until {clock(until)}"
    desk.update(session.id, kept_until=until)
    judge.kept(desk, session, f"said by {caller}")
    desk.note(session.id, "kept", reason)
    return reason


async def explain(desk: Desk, caller: Caller, text: str) -> Explanation:
    """Each signal with its value, age and vote, the terms and what follows, in words."""
    found = await _find(desk, caller, parse_job_ref(text))
    return explanation(desk, desk.sessions.get(found.id, found))


async def set_brake(desk: Desk, caller: Caller, reason: str) -> str:
    """Pull the brake with a reason, or with "" let it go. Raises NotPermitted."""
    if not await is_operator(desk, caller):
        raise NotPermitted("only root and Slurm operators may use the brake")
    if reason:
        room.pull(desk, f"{line(reason, LONGEST_REASON)} (by {caller})")
    elif desk.brake:
        room.release(desk, str(caller))
    return desk.brake


async def ask_restore(
    desk: Desk, caller: Caller, text: str, accept: tuple[str, ...] = ()
) -> Session:
    """`accept`: files that may have changed while it slept. Raises BadRequest, and what
    `release.restore` raises."""
    if len(accept) > MOST_FILES or any(not path.startswith("/") for path in accept):
        raise BadRequest(f"at most {MOST_FILES} files can be accepted, by their absolute paths")
    found = await _find(desk, caller, parse_job_ref(text))
    # An owner who is an operator, too, may release what an operator holds.
    operator = await sees_all(desk, caller)
    await release.first_reports(desk, found)
    async with desk.lock(found.id):
        current = desk.sessions.get(found.id, found)
        after = await release.restore(
            desk, current, operator=operator, by=str(caller), accept=accept
        )
        return _as_told(desk, after)


async def events(desk: Desk, caller: Caller, text: str, after: int, limit: int) -> list[Event]:
    if not 0 < limit <= MOST_EVENTS or after < 0:
        raise BadRequest(f"limit must lie between 1 and {MOST_EVENTS}, after not below 0")
    uid = None if await sees_all(desk, caller) else caller.uid
    job_id = 0
    if text:
        ref = parse_job_ref(text)
        known = await _known(desk, ref, uid)
        job_id = known.id.job_id if known is not None else ref.job_id
        if known is not None:
            await _refuse_strangers(desk, caller, known.id.uid, text)
    return list(desk.journal.events(job_id=job_id, uid=uid, after=after, limit=limit))


async def is_operator(desk: Desk, caller: Caller) -> bool:
    """Raises SchedulerUnavailable where Slurm's accounting does not say."""
    return caller.root or (bool(caller.user) and await desk.scheduler.operator(caller.user))


async def sees_all(desk: Desk, caller: Caller) -> bool:
    """Not known is no: an owner must not be stopped by a slurmdbd that is down."""
    try:
        return await is_operator(desk, caller)
    except Unavailable:
        return False


async def _find(desk: Desk, caller: Caller, ref: JobRef) -> Session:
    """Raises BadRequest, NotManaged, NotPermitted, NotReclaimable, WrongState."""
    uid = None if await sees_all(desk, caller) else caller.uid
    found = await _known(desk, ref, uid)
    if found is None:
        raise await _why_unknown(desk, caller, ref)
    await _refuse_strangers(desk, caller, found.id.uid, str(ref))
    return found


async def _known(desk: Desk, ref: JobRef, uid: int | None) -> Session | None:
    """The living session of that job, else the newest one that ended; among the tasks of an array
    by its bare number, and those that ended, only of this owner (None: of any)."""
    if ref.array_task is None:
        mine = (s for s in desk.sessions.values() if uid is None or s.id.uid == uid)
        tasks = [s.job for s in mine if _task_of(s, ref.job_id)]
        if tasks:
            raise BadRequest(
                f"{ref} is a job array with {len(tasks)} managed task(s)",
                hint=f"name one task: {', '.join(sorted(tasks)[:5])}",
            )
        living = list(desk.of_job(ref.job_id))
        known = living or list(desk.journal.of_job(ref.job_id))
    else:
        every = desk.sessions.values()
        known = [s for s in every if _is_task(s, ref)]
        if not known:
            wanted = (ref.job_id, ref.array_task, uid)
            known = list(await asyncio.to_thread(desk.journal.of_array, *wanted))
    return max(known, key=lambda s: s.id.submitted, default=None)


def _task_of(session: Session, array: int) -> bool:
    return session.array_task is not None and session.array_job_id == array


def _is_task(session: Session, ref: JobRef) -> bool:
    return _task_of(session, ref.job_id) and session.array_task == ref.array_task


async def _refuse_strangers(desk: Desk, caller: Caller, uid: int, job: str) -> None:
    if caller.uid == uid or await is_operator(desk, caller):
        return
    raise NotPermitted(
        f"job {job} belongs to another user",
        hint="only its owner and Slurm operators can see or change its session",
    )


async def _why_unknown(desk: Desk, caller: Caller, ref: JobRef) -> Exception:
    """The narrowest thing that is true of a job that has no session."""
    detail = await desk.scheduler.detail(ref.job_id)
    if detail is None:
        return NotManaged(f"Slurm does not know job {ref}", hint="look with: squeue --me")
    await _refuse_strangers(desk, caller, detail.job.uid, str(ref))
    if ref.array_task is not None and not detail.job.array_job_id:
        return BadRequest(f"job {ref.job_id} is no job array", hint=f"use {ref.job_id}")
    hibernate.refuse_unfit(str(ref), detail)
    if not detail.job.running:
        return WrongState(
            f"job {ref} is {detail.job.state} and has no session",
            hint="a session begins when a managed job starts to run",
        )
    return NotManaged(
        f"job {ref} is not managed by slurm-reclaim",
        hint="submit it with sbatch --reclaim=on, or ask the admins for an [[adopt]] rule; "
        "a job that has just started is taken in within seconds",
    )


def _as_told(desk: Desk, session: Session) -> Session:
    """With what only its agent knows."""
    return replace(session, progress=progress(desk, session), gpus=gpus(desk, session))
