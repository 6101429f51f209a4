"""The journal's tables: a session is one JSON column, and a column for all it is searched by."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

# Raise it when a reader of the old tables would misread the new ones.
SCHEMA_VERSION = 1

metadata = MetaData()
# SQLite counts rows up by itself only for the type INTEGER.
_Number = BigInteger().with_variant(Integer, "sqlite")

meta = Table(
    "meta",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", String(190), primary_key=True),
    Column("job_id", BigInteger, nullable=False),
    Column("uid", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("since", Float(53), nullable=False),
    Column("body", Text, nullable=False),
    Index("sessions_by_job", "job_id"),
    Index("sessions_by_state", "state"),
    Index("sessions_by_end", "state", "since"),
    Index("sessions_by_uid", "uid", "state", "since"),
)

events = Table(
    "events",
    metadata,
    Column("seq", _Number, primary_key=True, autoincrement=True),
    Column("at", Float(53), nullable=False),
    Column("kind", String(64), nullable=False),
    Column("reason", Text, nullable=False),
    Column("session", String(190), nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("uid", BigInteger, nullable=False),
    Column("node", String(255), nullable=False),
    Column("before", String(16), nullable=False),
    Column("after", String(16), nullable=False),
    Column("details", Text, nullable=False),
    Index("events_by_job", "job_id", "seq"),
    Index("events_by_uid", "uid", "seq"),
    sqlite_autoincrement=True,
)

evidence = Table(
    "evidence",
    metadata,
    Column("session", String(190), primary_key=True),
    Column("body", Text, nullable=False),
)

intents = Table(
    "intents",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=True),
    Column("at", Float(53), nullable=False),
    Column("session", String(190), nullable=False),
    Column("what", String(32), nullable=False),
    Column("details", Text, nullable=False),
    Column("outcome", Text),
    Column("settled", Float(53)),
    Index("intents_by_session", "session"),
    Index("intents_by_settled", "settled"),
    sqlite_autoincrement=True,
)

pins = Table(
    "pins",
    metadata,
    Column("session", String(190), primary_key=True),
    Column("restarts", Integer, primary_key=True, autoincrement=False),
    Column("admin", Boolean, primary_key=True),
    Column("body", Text, nullable=False),
)

announced = Table(
    "announced",
    metadata,
    Column("session", String(190), primary_key=True),
    Column("body", Text, nullable=False),
)
