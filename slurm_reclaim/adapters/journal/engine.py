"""Opens the journal's database so that what was committed survives a power failure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, insert, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from slurm_reclaim.adapters.journal.tables import SCHEMA_VERSION, meta, metadata
from slurm_reclaim.errors import ConfigError, StoreUnavailable

SQLITE_FILE = "journal.sqlite"


def open_engine(url: str, state: str) -> Engine:
    """The database of `url`, or the SQLite file below the directory `state` where `url` is empty,
    with its tables. Raises ConfigError, StoreUnavailable."""
    if not url:
        url = f"sqlite:///{Path(state) / SQLITE_FILE}"
    try:
        engine = create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise ConfigError([f"controller.journal: {_without_password(url)}: {error}"]) from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _durable)
    try:
        _private_file(engine)
        metadata.create_all(engine)
        for table in metadata.tables.values():
            for index in table.indexes:
                # One that came with a newer version, in a database that was there before.
                index.create(engine, checkfirst=True)
        _check_version(engine)
    except (SQLAlchemyError, OSError) as error:
        raise StoreUnavailable(
            f"the journal {engine.url.render_as_string()} can't be opened: {in_words(error)}",
            hint="does the directory exist, and may controller.user write there?",
        ) from error
    return engine


def in_words(error: Exception) -> str:
    """What the database said, in one line: without the statement, whose values are somebody's, and
    without a link to SQLAlchemy's pages."""
    said = error.orig if isinstance(error, DBAPIError) else error
    return " ".join(str(said or error).split())


def _durable(connection: Any, _record: object) -> None:
    """SQLite: WAL survives a crash of ours, synchronous=FULL also one of the machine."""
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000"):
        connection.execute(f"PRAGMA {pragma}").close()


def _private_file(engine: Engine) -> None:
    # Events name users and nodes: the file is its owner's alone, whatever the umask.
    file = engine.url.database
    if engine.dialect.name == "sqlite" and file:
        os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _check_version(engine: Engine) -> None:
    with engine.begin() as connection:
        found = connection.scalar(select(meta.c.value).where(meta.c.name == "schema"))
        if found is None:
            connection.execute(insert(meta).values(name="schema", value=str(SCHEMA_VERSION)))
        elif not found.isdigit() or int(found) > SCHEMA_VERSION:
            raise ConfigError(
                [
                    f"controller.journal: the journal is of version {found}, "
                    f"this program knows {SCHEMA_VERSION}"
                ],
                hint="it was written by a newer slurm-reclaim; install that version again",
            )


def _without_password(url: str) -> str:
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "(unreadable URL)"
