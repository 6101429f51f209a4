"""Sessions, events and intents in one database (ports.Journal).

The caller is one thread of one process: the lock beside the database sees to that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from sqlalchemy import Connection, Delete, Engine, Row, delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from slurm_reclaim.adapters.journal import tables
from slurm_reclaim.errors import IllegalTransition, StoreUnavailable
from slurm_reclaim.model.catalogue import Announced, Pin
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.evidence import Evidence
from slurm_reclaim.model.ids import SessionId, parse_session_id
from slurm_reclaim.model.lifecycle import Fact, State, follow
from slurm_reclaim.model.session import Session

_EVENT_COLUMNS = (
    "at", "kind", "reason", "session", "job_id", "uid", "node", "before", "after",
)  # fmt: skip


class SqlJournal:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def close(self) -> None:
        self._engine.dispose()

    def sessions(self, *, ended: bool = False) -> Sequence[Session]:
        """Every session, or with `ended` false only those that live; in order of their ids."""
        query = select(tables.sessions.c.body).order_by(tables.sessions.c.id)
        if not ended:
            query = query.where(tables.sessions.c.state != State.ENDED.value)
        with self._reading() as connection:
            return [_session(body) for body in connection.scalars(query)]

    def session(self, id: SessionId) -> Session | None:
        query = select(tables.sessions.c.body).where(tables.sessions.c.id == str(id))
        with self._reading() as connection:
            body = connection.scalar(query)
        return None if body is None else _session(body)

    def of_job(self, job_id: int) -> Sequence[Session]:
        """Every session that ever had this job id, the newest last."""
        query = select(tables.sessions.c.body).where(tables.sessions.c.job_id == job_id)
        with self._reading() as connection:
            found = [_session(body) for body in connection.scalars(query)]
        return sorted(found, key=lambda session: session.id.submitted)

    def open_session(self, session: Session, event: Event) -> None:
        with self._writing() as connection:
            connection.execute(insert(tables.sessions).values(id=str(session.id), **_row(session)))
            _add(connection, event)

    def apply(self, session: Session, fact: Fact, event: Event) -> None:
        """Raises IllegalTransition where `fact` does not lead to `session.state`."""
        with self._writing() as connection:
            query = select(tables.sessions.c.state).where(tables.sessions.c.id == str(session.id))
            before = State(connection.scalar(query))
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
            key = connection.execute(insert(tables.intents).values(**row)).inserted_primary_key
        assert key is not None
        return int(key[0])

    def settle(self, intent: int, outcome: str) -> None:
        change = update(tables.intents).where(tables.intents.c.number == intent)
        with self._writing() as connection:
            connection.execute(change.values(outcome=outcome, settled=time.time()))

    def remember(self, name: str, value: str) -> None:
        with self._writing() as connection:
            connection.execute(delete(tables.meta).where(tables.meta.c.name == name))
            if value:
                connection.execute(insert(tables.meta).values(name=name, value=value))

    def recall(self, name: str) -> str:
        query = select(tables.meta.c.value).where(tables.meta.c.name == name)
        with self._reading() as connection:
            return connection.scalar(query) or ""

    def keep_evidence(self, evidence: Mapping[SessionId, Evidence]) -> None:
        rows = [
            {"session": str(id), "body": msgspec.json.encode(known).decode()}
            for id, known in evidence.items()
        ]
        with self._writing() as connection:
            connection.execute(delete(tables.evidence))
            if rows:
                connection.execute(insert(tables.evidence), rows)

    def evidence(self) -> Mapping[SessionId, Evidence]:
        with self._reading() as connection:
            rows = connection.execute(select(tables.evidence)).all()
        found = {}
        for row in rows:
            # Of another version, or with a number that JSON has no word for: measured anew.
            with suppress(msgspec.MsgspecError):
                found[parse_session_id(row.session)] = msgspec.json.decode(row.body, type=Evidence)
        return found

    def pins(self) -> Sequence[Pin]:
        with self._reading() as connection:
            bodies = connection.scalars(select(tables.pins.c.body))
            return [msgspec.json.decode(body, type=Pin) for body in bodies]

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
            found = [msgspec.json.decode(body, type=Announced) for body in bodies]
        return {each.session: each for each in found}

    def announce(self, announced: Announced) -> None:
        """Replaces what was stored of that session."""
        table, body = tables.announced, msgspec.json.encode(announced).decode()
        with self._writing() as connection:
            connection.execute(delete(table).where(table.c.session == announced.session))
            connection.execute(insert(table).values(session=announced.session, body=body))

    def unsettled(self) -> Sequence[tuple[int, str, str, str]]:
        c = tables.intents.c
        query = select(c.number, c.session, c.what, c.details).where(c.outcome.is_(None))
        with self._reading() as connection:
            rows = connection.execute(query.order_by(c.number))
            return [(row.number, row.session, row.what, row.details) for row in rows]

    def trim(self, before: float) -> None:
        """Drop events and settled intents older than `before` (Unix seconds); sessions stay."""
        with self._writing() as connection:
            connection.execute(delete(tables.events).where(tables.events.c.at < before))
            connection.execute(delete(tables.intents).where(tables.intents.c.settled < before))

    def _store(self, connection: Connection, session: Session) -> None:
        change = update(tables.sessions).where(tables.sessions.c.id == str(session.id))
        connection.execute(change.values(**_row(session)))

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
        raise StoreUnavailable(f"the journal did not answer: {error}") from error


def _row(session: Session) -> dict[str, Any]:
    return {
        "job_id": session.id.job_id,
        "uid": session.id.uid,
        "state": session.state.value,
        "since": session.since,
        "body": msgspec.json.encode(session).decode(),
    }


def _session(body: str) -> Session:
    return msgspec.json.decode(body, type=Session)


def _add(connection: Connection, event: Event) -> None:
    row = {name: getattr(event, name) for name in _EVENT_COLUMNS}
    row["details"] = msgspec.json.encode(event.details).decode()
    connection.execute(insert(tables.events).values(**row))


def _event(row: Row[Any]) -> Event:
    fields = {name: getattr(row, name) for name in _EVENT_COLUMNS}
    return Event(**fields, details=msgspec.json.decode(row.details), seq=row.seq)
