"""The journal's statements, made once: SQLAlchemy takes longer to make one than to run it."""

from __future__ import annotations

from sqlalchemy import Integer, bindparam, delete, insert, select, update

from slurm_reclaim.adapters.journal.tables import (
    announced,
    events,
    evidence,
    intents,
    meta,
    sessions,
)
from slurm_reclaim.model.lifecycle import State

# A bindparam() that is named like a column would be taken for that column's new value.
LIVING_SESSIONS = (
    select(sessions.c.body).where(sessions.c.state != State.ENDED.value).order_by(sessions.c.id)
)
ENDED_SESSIONS = (
    select(sessions.c.body)
    .where(sessions.c.state == State.ENDED.value)
    .order_by(sessions.c.since.desc())
    .limit(bindparam("most", type_=Integer))
)
ENDED_SESSIONS_OF_USER = ENDED_SESSIONS.where(sessions.c.uid == bindparam("of"))
# A task's own number is never lower than that of its array.
SESSIONS_OF_ARRAY = select(sessions.c.body).where(
    sessions.c.job_id >= bindparam("array"), sessions.c.body.contains(bindparam("named"))
)
SESSIONS_OF_ARRAY_OF_USER = SESSIONS_OF_ARRAY.where(sessions.c.uid == bindparam("of"))
SESSION = select(sessions.c.body).where(sessions.c.id == bindparam("which"))
SESSIONS_OF_JOB = select(sessions.c.body).where(sessions.c.job_id == bindparam("job"))
STATE_OF_SESSION = select(sessions.c.state).where(sessions.c.id == bindparam("which"))
ADD_SESSION = insert(sessions)
CHANGE_SESSION = (
    update(sessions)
    .where(sessions.c.id == bindparam("which"))
    .values({name: bindparam(name) for name in ("job_id", "uid", "state", "since", "body")})
)

ADD_EVENT = insert(events)
# By their numbers, which are those of the table: what is old is not looked for among the rest.
FIRST_EVENT_KEPT = (
    select(events.c.seq).where(events.c.at >= bindparam("before")).order_by(events.c.seq).limit(1)
)
TRIM_EVENTS = delete(events).where(events.c.seq < bindparam("first"))

ADD_INTENT = insert(intents)
SETTLE_INTENT = (
    update(intents)
    .where(intents.c.number == bindparam("which"))
    .values(outcome=bindparam("outcome"), settled=bindparam("settled"))
)
UNSETTLED_INTENTS = (
    select(intents.c.number, intents.c.session, intents.c.what, intents.c.details)
    .where(intents.c.settled.is_(None))
    .order_by(intents.c.number)
)
UNSETTLED_INTENTS_OF = UNSETTLED_INTENTS.where(intents.c.session == bindparam("of"))
TRIM_INTENTS = delete(intents).where(intents.c.settled < bindparam("before"))

REMEMBERED = select(meta.c.value).where(meta.c.name == bindparam("which"))
REMEMBER = insert(meta)
FORGET = delete(meta).where(meta.c.name == bindparam("which"))

EVIDENCE = select(evidence)
ADD_EVIDENCE = insert(evidence)
_LIVING = select(sessions.c.id).where(sessions.c.state != State.ENDED.value)
TRIM_EVIDENCE = delete(evidence).where(evidence.c.session.not_in(_LIVING))
TRIM_ANNOUNCED = delete(announced).where(announced.c.session.not_in(_LIVING))
FORGET_EVIDENCE = delete(evidence).where(evidence.c.session == bindparam("which"))
