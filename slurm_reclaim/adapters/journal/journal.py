"""Sessions, events and intents in one database (ports.Journal).

One process alone calls it: the lock beside the database sees to that. Its threads may, each for a
transaction of its own.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Delete, Engine, Row, delete, insert, select
from sqlalchemy.exc import SQLAlchemyError

from slurm_reclaim.adapters.journal import statements, tables
from slurm_reclaim.adapters.journal.engine import in_words
from slurm_reclaim.errors import IllegalTransition, StoreUnavailable
from slurm_reclaim.model.catalogue import Announced, Pin
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.evidence import Evidence
from slurm_reclaim.model.ids import SessionId, parse_session_id
from slurm_reclaim.model.lifecycle import Fact, State, follow
from slurm_reclaim.model.printable import line
from slurm_reclaim.model.session import Session

_EVENT_COLUMNS = (
    "at", "kind", "reason", "session", "job_id", "uid", "node", "before", "after",
)  # fmt: skip

_NO_EVENT = 1 << 62  # a number that none has
_Details = dict[str, str | int | float | list[str]]

T = TypeVar("T")


class SqlJournal:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def close(self) -> None:
        self._engine.dispose()

    def sessions(self) -> Sequence[Session]:
        """Those that live, in order of their ids."""
        with self._reading() as connection:
            return [_session(body) for body in connection.scalars(statements.LIVING_SESSIONS)]

    def ended(self, *, uid: int | None = None, limit: int = 200) -> Sequence[Session]:
        """The last `limit` that ended, of one owner or of all; the newest last. They are kept for
        ever, so that no query takes all of them."""
        one = {"most": limit} if uid is None else {"most": limit, "of": uid}
        query = statements.ENDED_SESSIONS if uid is None else statements.ENDED_SESSIONS_OF_USER
        with self._reading() as connection:
            return [_session(body) for body in connection.scalars(query, one)][::-1]

    def of_array(self, array_job_id: int, task: int, uid: int | None = None) -> Sequence[Session]:
        """Every session that ever was this task of a job array."""
        named = f'"array_job_id":{array_job_id},"array_task":{task},'
        values: dict[str, Any] = {"array": array_job_id, "named": named}
        query = statements.SESSIONS_OF_ARRAY
        if uid is not None:
            query, values = statements.SESSIONS_OF_ARRAY_OF_USER, values | {"of": uid}
        with self._reading() as connection:
            found = [_session(body) for body in connection.scalars(query, values)]
        return [s for s in found if (s.array_job_id, s.array_task) == (array_job_id, task)]

    def session(self, id: SessionId) -> Session | None:
        with self._reading() as connection:
            body = connection.scalar(statements.SESSION, {"which": str(id)})
        return None if body is None else _session(body)

    def of_job(self, job_id: int) -> Sequence[Session]:
        """Every session that ever had this job id, the newest last."""
        with self._reading() as connection:
            bodies = connection.scalars(statements.SESSIONS_OF_JOB, {"job": job_id})
            found = [_session(body) for body in bodies]
        return sorted(found, key=lambda session: session.id.submitted)

    def open_session(self, session: Session, event: Event) -> None:
        with self._writing() as connection:
            connection.execute(statements.ADD_SESSION, {"id": str(session.id), **_row(session)})
            _add(connection, event)

    def apply(self, session: Session, fact: Fact, event: Event) -> None:
        """Raises IllegalTransition where `fact` does not lead to `session.state`."""
        with self._writing() as connection:
            named = {"which": str(session.id)}
            before = State(connection.scalar(statements.STATE_OF_SESSION, named))
            after = follow(before, fact)
            if after is not session.state:
                raise IllegalTransition(
                    f"{fact} leads from {before} to {after}, not {session.state}"
                )
            self._store(connection, session)
            _add(connection, event)

    def update(self, session: Session) -> None:
        with self._writing() as connection:
            self._store(connection, session)

    def note(self, event: Event) -> None:
        with self._writing() as connection:
            _add(connection, event)

    def events(
        self, *, job_id: int = 0, uid: int | None = None, after: int = 0, limit: int = 200
    ) -> Sequence[Event]:
        """In order; the first `limit` after the number `after`, or with `after` 0 the last."""
        query = select(tables.events)
        if job_id:
            query = query.where(tables.events.c.job_id == job_id)
        if uid is not None:
            query = query.where(tables.events.c.uid == uid)
        if after:
            query = query.where(tables.events.c.seq > after).order_by(tables.events.c.seq)
        else:
            query = query.order_by(tables.events.c.seq.desc())
        with self._reading() as connection:
            found = [_event(row) for row in connection.execute(query.limit(limit))]
        return sorted(found, key=lambda event: event.seq)

    def intend(self, session: SessionId, what: str, details: str) -> int:
        row = {"at": time.time(), "session": str(session), "what": what, "details": details}
        with self._writing() as connection:
            key = connection.execute(statements.ADD_INTENT, row).inserted_primary_key
        assert key is not None
        return int(key[0])

    def settle(self, intent: int, outcome: str) -> None:
        change = {"which": intent, "outcome": outcome, "settled": time.time()}
        with self._writing() as connection:
            connection.execute(statements.SETTLE_INTENT, change)

    def remember(self, name: str, value: str) -> None:
        with self._writing() as connection:
            connection.execute(statements.FORGET, {"which": name})
            if value:
                connection.execute(statements.REMEMBER, {"name": name, "value": value})

    def recall(self, name: str) -> str:
        with self._reading() as connection:
            return connection.scalar(statements.REMEMBERED, {"which": name}) or ""

    def keep_evidence(
        self, changed: Mapping[SessionId, Evidence], gone: Collection[SessionId]
    ) -> None:
        rows = [
            {"session": str(id), "body": msgspec.json.encode(known).decode()}
            for id, known in changed.items()
        ]
        old = [{"which": str(id)} for id in (*changed, *gone)]
        with self._writing() as connection:
            if old:
                connection.execute(statements.FORGET_EVIDENCE, old)
            if rows:
                connection.execute(statements.ADD_EVIDENCE, rows)

    def evidence(self) -> Mapping[SessionId, Evidence]:
        with self._reading() as connection:
            rows = connection.execute(statements.EVIDENCE).all()
        found = {}
        for row in rows:
            # Of another version, or with a number that JSON has no word for: measured anew.
            with suppress(msgspec.MsgspecError):
                found[parse_session_id(row.session)] = msgspec.json.decode(row.body, type=Evidence)
        return found

    def pins(self) -> Sequence[Pin]:
        with self._reading() as connection:
            bodies = connection.scalars(select(tables.pins.c.body))
            return [_read(body, Pin, "a pin") for body in bodies]

    def pin(self, pin: Pin) -> None:
        """Replaces what was said by the same side (owner or admin) of the same checkpoint."""
        row = {"session": pin.session, "restarts": pin.restarts, "admin": pin.admin}
        with self._writing() as connection:
            connection.execute(_the_pin(pin))
            body = msgspec.json.encode(pin).decode()
            connection.execute(insert(tables.pins).values(**row, body=body))

    def unpin(self, pin: Pin) -> None:
        with self._writing() as connection:
            connection.execute(_the_pin(pin))

    def announced(self) -> Mapping[str, Announced]:
        """What owners were told of the end of their sessions, by session."""
        with self._reading() as connection:
            bodies = connection.scalars(select(tables.announced.c.body))
            found = [_read(body, Announced, "what an owner was told") for body in bodies]
        return {each.session: each for each in found}

    def announce(self, announced: Announced) -> None:
        """Replaces what was stored of that session."""
        table, body = tables.announced, msgspec.json.encode(announced).decode()
        with self._writing() as connection:
            connection.execute(delete(table).where(table.c.session == announced.session))
            connection.execute(insert(table).values(session=announced.session, body=body))

    def unsettled(self, session: SessionId | None = None) -> Sequence[tuple[int, str, str, str]]:
        query, of = statements.UNSETTLED_INTENTS, {}
        if session is not None:
            query, of = statements.UNSETTLED_INTENTS_OF, {"of": str(session)}
        with self._reading() as connection:
            rows = connection.execute(query, of)
            return [(row.number, row.session, row.what, row.details) for row in rows]

    def trim(self, before: float) -> None:
        """Drop events and settled intents older than `before` (Unix seconds), and what sessions
        that have ended were judged by and their owners told; sessions stay."""
        with self._writing() as connection:
            first = connection.scalar(statements.FIRST_EVENT_KEPT, {"before": before})
            old = {"first": _NO_EVENT if first is None else first}
            connection.execute(statements.TRIM_EVENTS, old)
            connection.execute(statements.TRIM_INTENTS, {"before": before})
            connection.execute(statements.TRIM_EVIDENCE)
            connection.execute(statements.TRIM_ANNOUNCED)

    def _store(self, connection: Connection, session: Session) -> None:
        change = {"which": str(session.id), **_row(session)}
        connection.execute(statements.CHANGE_SESSION, change)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with _translated(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """One transaction: all of it is on the disk when the block ends, or nothing."""
        with _translated(), self._engine.begin() as connection:
            yield connection


def _the_pin(pin: Pin) -> Delete:
    c = tables.pins.c
    same = (c.session == pin.session, c.restarts == pin.restarts, c.admin == pin.admin)
    return delete(tables.pins).where(*same)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreUnavailable(f"the journal did not answer: {in_words(error)}") from error
    except OverflowError as error:
        raise StoreUnavailable(f"the journal has no room for such a number: {error}") from None


def _row(session: Session) -> dict[str, Any]:
    return {
        "job_id": session.id.job_id,
        "uid": session.id.uid,
        "state": session.state.value,
        "since": session.since,
        "body": msgspec.json.encode(session).decode(),
    }


def _session(body: str) -> Session:
    return _read(body, Session, "a session")


def _read(body: str, kind: type[T], what: str) -> T:
    """Raises StoreUnavailable: who goes on without what is written there loses what it says."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise StoreUnavailable(
            f"{what} in the journal can't be read: {error}: {line(str(body))}",
            hint="was it damaged, or written by a newer version? it goes on from a backup, or "
            "without the row",
        ) from None


def _add(connection: Connection, event: Event) -> None:
    row = {name: getattr(event, name) for name in _EVENT_COLUMNS}
    row["details"] = msgspec.json.encode(event.details).decode()
    connection.execute(statements.ADD_EVENT, row)


def _event(row: Row[Any]) -> Event:
    fields = {name: getattr(row, name) for name in _EVENT_COLUMNS}
    details = _read(row.details, _Details, "an event")
    return Event(**fields, details=details, seq=row.seq)
