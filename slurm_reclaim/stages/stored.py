"""What people ask of the store: owners about their own checkpoints, operators about all."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from slurm_reclaim.errors import (
    AgentUnavailable,
    BadRequest,
    NotManaged,
    NotPermitted,
    ReclaimError,
    Refused,
    StoreUnavailable,
    WrongState,
)
from slurm_reclaim.model.caller import Caller
from slurm_reclaim.model.catalogue import (
    CheckpointRef,
    Errand,
    Listed,
    Listing,
    Pin,
    Shown,
    StoreAnswer,
    StoredSession,
    StoreTask,
    parse_checkpoint_ref,
)
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.ids import parse_session_id
from slurm_reclaim.model.order import Verb
from slurm_reclaim.model.retention import Expiry, Plan, Standing
from slurm_reclaim.stages import expire, shelf, standing
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.requests import is_operator, sees_all

log = logging.getLogger(__name__)

MOST_ERRANDS = 50
LONGEST_REASON = 200  # characters
# A catalogue as old as this is shown as it is: people may ask as often as they like.
FRESH = 3.0  # seconds


@dataclass(frozen=True)
class Found:
    """One checkpoint that the caller may see."""

    stored: StoredSession
    restarts: int
    uid: int


# -- looking -------------------------------------------------------------------------------------


async def listing(desk: Desk, caller: Caller) -> Listing:
    """Raises Unavailable where nobody has ever looked; else what is known, with its age."""
    try:
        await shelf.refresh(desk, FRESH)
    except (AgentUnavailable, StoreUnavailable):
        if not desk.shelf.at:
            raise
    plan = await standing.planned(desk)
    pins = list(desk.journal.pins())
    every = await sees_all(desk, caller)
    shown = [
        listed
        for stored in desk.shelf.sessions.values()
        if every or parse_session_id(stored.session).uid == caller.uid
        for listed in _listed(desk, stored, plan, pins)
    ]
    orphans = [s for s in desk.shelf.sessions.values() if _state(desk, s.session) == ORPHAN]
    return Listing(
        at=desk.shelf.at,
        node=desk.shelf.node,
        checkpoints=tuple(shown),
        total=plan.total if every else 0,
        orphans=sum(each.bytes for each in orphans) if every else 0,
    )


ORPHAN = "ORPHAN"


def _state(desk: Desk, name: str) -> str:
    id = parse_session_id(name)
    session = desk.sessions.get(id) or desk.journal.session(id)
    return ORPHAN if session is None else session.state.value


def _name_of_job(desk: Desk, name: str) -> str:
    session = desk.sessions.get(id := parse_session_id(name))
    return str(id.job_id) if session is None else session.job


def _listed(desk: Desk, stored: StoredSession, plan: Plan, pins: Iterable[Pin]) -> Iterable[Listed]:
    id = parse_session_id(stored.session)
    session = desk.sessions.get(id) or desk.journal.session(id)
    state = ORPHAN if session is None else session.state.value
    for each in stored.checkpoints:
        verdict = plan.verdicts.get((stored.session, each.restarts))
        yield Listed(
            session=stored.session,
            restarts=each.restarts,
            job=str(id.job_id) if session is None else session.job,
            user=each.user or (session.user if session is not None else ""),
            uid=id.uid,
            state=state,
            created=each.created,
            bytes=each.bytes,
            alone=stored.alone(each.restarts),
            node=each.node,
            reason=each.reason,
            keeps="" if verdict is None else verdict.reason,
            expires=0.0 if verdict is None else verdict.due,
            pins=tuple(
                p for p in pins if (p.session, p.restarts) == (stored.session, each.restarts)
            ),
            problem=each.problem,
        )


async def show(desk: Desk, caller: Caller, text: str) -> Shown:
    found = await _find(desk, caller, text)
    plan = await standing.planned(desk)
    (listed,) = (
        each
        for each in _listed(desk, found.stored, plan, desk.journal.pins())
        if each.restarts == found.restarts
    )
    if listed.problem or _only(found):
        return Shown(listed)
    task = StoreTask(found.stored.session, (found.restarts,))
    result = await shelf.ask(desk, Verb.PARTS, task, "")
    return Shown(listed, (result.store or StoreAnswer()).parts)


async def _find(desk: Desk, caller: Caller, text: str) -> Found:
    """Raises BadRequest, NotManaged, NotPermitted, AgentUnavailable."""
    ref = parse_checkpoint_ref(text)
    await shelf.refresh(desk, FRESH)
    stored = _newest_session(desk, ref)
    if stored is None or ref.restarts not in (-1, *(c.restarts for c in stored.checkpoints)):
        await shelf.refresh(desk)
        stored = _newest_session(desk, ref)
    if stored is None:
        raise NotManaged(
            f"there is no checkpoint of {ref.session or f'job {ref.job_id}'} in the store",
            hint="look with: reclaim checkpoints list",
        )
    uid = parse_session_id(stored.session).uid
    if uid != caller.uid and not await is_operator(desk, caller):
        raise NotPermitted(f"job {ref.job_id} belongs to another user")
    numbers = [each.restarts for each in stored.checkpoints]
    restarts = max(numbers) if ref.restarts < 0 else ref.restarts
    if restarts not in numbers:
        raise NotManaged(
            f"{stored.session} has no checkpoint {restarts}",
            hint=f"it has: {', '.join(map(str, numbers))}",
        )
    return Found(stored, restarts, uid)


def _only(found: Found) -> str:
    """The node that has the only copy; "" where the store has it."""
    return next(c.only for c in found.stored.checkpoints if c.restarts == found.restarts)


def _see_that_the_store_has_it(found: Found) -> None:
    if node := _only(found):
        raise Refused(
            f"checkpoint {found.restarts} of {found.stored.session} is on {node} only until it is "
            "uploaded",
            hint="where that node is lost for good: reclaim checkpoints abandon",
        )


def _newest_session(desk: Desk, ref: CheckpointRef) -> StoredSession | None:
    if ref.session:
        stored = desk.shelf.sessions.get(ref.session)
        return stored if stored is not None and stored.checkpoints else None
    of_job = [
        (id.submitted, stored)
        for stored in desk.shelf.sessions.values()
        if (id := parse_session_id(stored.session)).job_id == ref.job_id and stored.checkpoints
    ]
    return max(of_job, key=lambda each: each[0])[1] if of_job else None


# -- pins ----------------------------------------------------------------------------------------


async def pin(desk: Desk, caller: Caller, text: str, reason: str) -> Pin:
    """An owner's pin may be taken away by the owner and by operators; an operator's by operators
    only. Raises Refused where the owner has too many."""
    found = await _find(desk, caller, text)
    admin = await is_operator(desk, caller)
    if not admin:
        _see_that_it_is_not_too_many(desk, caller, found)
    made = Pin(
        found.stored.session,
        found.restarts,
        admin,
        str(caller),
        desk.clock.now(),
        " ".join(reason.split())[:LONGEST_REASON],
    )
    desk.journal.pin(made)
    _note(desk, made, "checkpoint-pinned", f"pinned by {made.by}: {made.reason or 'no reason'}")
    return made


def _see_that_it_is_not_too_many(desk: Desk, caller: Caller, found: Found) -> None:
    most = desk.settings.config.retention.owner_pins
    this = (found.stored.session, found.restarts)
    mine = {
        (each.session, each.restarts)
        for each in desk.journal.pins()
        if not each.admin
        and each.session in desk.shelf.sessions
        and parse_session_id(each.session).uid == caller.uid
    }
    if len(mine - {this}) >= most:
        raise Refused(
            f"{caller} has pinned {len(mine)} checkpoints already; {most} are allowed "
            "(retention.owner_pins)",
            hint="take one away with: reclaim checkpoints unpin",
        )


async def unpin(desk: Desk, caller: Caller, text: str) -> tuple[Pin, ...]:
    """The pins that were taken away."""
    found = await _find(desk, caller, text)
    admin = await is_operator(desk, caller)
    pins = [
        each
        for each in desk.journal.pins()
        if (each.session, each.restarts) == (found.stored.session, found.restarts)
    ]
    if not pins:
        raise WrongState(f"checkpoint {found.restarts} of {found.stored.session} is not pinned")
    if not admin and all(each.admin for each in pins):
        raise NotPermitted(f"it was pinned by {pins[0].by}, an operator")
    going = tuple(each for each in pins if admin or not each.admin)
    for each in going:
        desk.journal.unpin(each)
        _note(desk, each, "checkpoint-unpinned", f"pin of {each.by} taken away by {caller}")
    return going


def _note(desk: Desk, pin: Pin, kind: str, reason: str) -> None:
    id = parse_session_id(pin.session)
    desk.journal.note(
        Event(
            at=desk.clock.now(),
            kind=kind,
            reason=f"checkpoint {pin.restarts}: {reason}",
            session=pin.session,
            job_id=id.job_id,
            uid=id.uid,
        )
    )


# -- work that takes its time --------------------------------------------------------------------


async def verify(desk: Desk, caller: Caller, text: str) -> Errand:
    """Operators only: it reads as much as it likes from a store that all share."""
    if not await is_operator(desk, caller):
        raise NotPermitted("only root and Slurm operators may have checkpoints read again")
    found = await _find(desk, caller, text)
    _see_that_the_store_has_it(found)

    async def work() -> StoreAnswer:
        task = StoreTask(found.stored.session, (found.restarts,))
        result = await shelf.ask(desk, Verb.VERIFY, task, f"for {caller}", limit=shelf.LONG)
        return result.store or StoreAnswer()

    return _begin(desk, work())


async def expire_now(desk: Desk, caller: Caller, text: str) -> Errand:
    """Before its time; never the one checkpoint that a living session may need. A session that the
    journal does not know is for operators. Raises Refused with what is in the way."""
    found = await _find(desk, caller, text)
    name, restarts = found.stored.session, found.restarts
    _see_that_the_store_has_it(found)
    known = standing.known_of(desk, found.stored, {})
    if any((p.session, p.restarts) == (name, restarts) for p in desk.journal.pins()):
        raise Refused(
            f"checkpoint {restarts} of {name} is pinned",
            hint="take the pin away first: reclaim checkpoints unpin",
        )
    if known.standing is Standing.ORPHAN:
        if not await is_operator(desk, caller):
            raise NotPermitted(f"the journal does not know {name}; only an operator can expire it")
        if why := standing.doubt(desk) or standing.slurm_shows(desk, parse_session_id(name)):
            raise Refused(f"{name}: {why}")
    elif known.standing is Standing.UNKNOWN:
        raise Refused(f"{name}: {known.why}", hint="try again when that is over")
    elif known.standing is not Standing.ENDED and (
        restarts in found.stored.needed or restarts == known.checkpoint
    ):
        raise Refused(
            f"checkpoint {restarts} is the newest of {name}, which has not ended",
            hint=f"end the session first: scancel {_name_of_job(desk, name)}",
        )
    elif known.standing in (Standing.BUSY, Standing.FAILED):
        raise Refused(f"{name} is {known.standing.value}")
    ended = known.standing in (Standing.ENDED, Standing.ORPHAN)
    expiry = Expiry(name, (restarts,), ended, f"asked by {caller}")
    return _begin(desk, _expire(desk, expiry))


async def _expire(desk: Desk, expiry: Expiry) -> StoreAnswer:
    answer = await expire.expire(desk, expiry)
    with suppress(ReclaimError):
        # Quotas go by what is there now.
        await shelf.refresh(desk)
    return answer


def _begin(desk: Desk, work: Coroutine[Any, Any, StoreAnswer]) -> Errand:
    number = secrets.token_hex(8)
    errands = desk.shelf.errands
    for old in [n for n, errand in errands.items() if errand.done][: -MOST_ERRANDS or None]:
        del errands[old]
    errands[number] = Errand(number)
    task = asyncio.get_running_loop().create_task(_run(desk, number, work))
    desk.shelf.tasks.add(task)
    task.add_done_callback(desk.shelf.tasks.discard)
    return errands[number]


async def _run(desk: Desk, number: str, work: Coroutine[Any, Any, StoreAnswer]) -> None:
    errand = desk.shelf.errands[number]
    try:
        errand = replace(errand, answer=await work)
    except ReclaimError as error:
        errand = replace(errand, error=error.message)
    except Exception as error:
        log.exception("errand %s", number)
        errand = replace(errand, error=f"internal error: {error}")
    desk.shelf.errands[number] = replace(errand, done=True)


async def errand(desk: Desk, number: str, wait: float) -> Errand:
    """How far it is, after at most `wait` seconds. The number is known to who asked for it only."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    while True:
        found = desk.shelf.errands.get(number)
        if found is None:
            raise BadRequest(
                "there is no such errand", hint="reclaimd was started anew; ask for it again"
            )
        if found.done or loop.time() >= deadline:
            return found
        await asyncio.sleep(0.1)
