"""One controller per journal: two would give contradicting orders (S3).

A file lock beside an SQLite journal; on a database server a lock that belongs to a connection and
so goes away with its holder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, delete, insert, select, text
from sqlalchemy.exc import SQLAlchemyError

from slurm_reclaim.adapters.file_lock import FileLock, myself
from slurm_reclaim.adapters.journal.engine import in_words
from slurm_reclaim.adapters.journal.tables import meta
from slurm_reclaim.errors import ConfigError, Refused, StoreUnavailable

_NAME = "slurm-reclaim"
_TAKEN = "another reclaimd ({}) works on this journal"
_HINT = "stop it first, or give this one a journal of its own (controller.journal)"
# MySQL's are the server's: of several clusters each has a database of its own there.
_MYSQL = f"SELECT GET_LOCK(CONCAT('{_NAME}.', MD5(DATABASE())), 0)"
_TRY = {
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "postgresql": f"SELECT pg_try_advisory_lock(hashtext('{_NAME}'))",
}


class Lock(Protocol):
    def held(self) -> bool:
        """Whether it is still ours. A connection to a server can be lost, and the lock with it."""
        ...

    def release(self) -> None: ...


def take_lock(engine: Engine) -> Lock:
    """The lock of this journal. Raises Refused naming the holder, ConfigError where this kind of
    database has none."""
    if engine.dialect.name == "sqlite":
        return FileLock(Path(f"{engine.url.database}.lock"), _TAKEN, _HINT)
    if engine.dialect.name not in _TRY:
        raise ConfigError(
            [f"controller.journal: no support for {engine.dialect.name} databases"],
            hint="use SQLite, MySQL or MariaDB, or PostgreSQL",
        )
    return ServerLock(engine)


class ServerLock:
    def __init__(self, engine: Engine) -> None:
        try:
            self._connection: Connection = engine.connect()
            got = self._connection.scalar(text(_TRY[engine.dialect.name]))
            query = select(meta.c.value).where(meta.c.name == "holder")
            if not got:
                holder = self._connection.scalar(query)
                self._connection.close()
                raise Refused(_TAKEN.format(holder or "unknown"), hint=_HINT)
            self._connection.execute(delete(meta).where(meta.c.name == "holder"))
            self._connection.execute(insert(meta).values(name="holder", value=myself()))
            self._connection.commit()
        except SQLAlchemyError as error:
            raise StoreUnavailable(
                f"the journal's lock can't be asked for: {in_words(error)}"
            ) from error

    def held(self) -> bool:
        try:
            # A connection made anew has lost the lock, so never let SQLAlchemy reconnect here.
            if self._connection.invalidated:
                return False
            self._connection.scalar(text("SELECT 1"))
            self._connection.commit()
            return True
        except SQLAlchemyError:
            return False

    def release(self) -> None:
        # Not back into the pool: only the end of the connection gives up the lock.
        self._connection.invalidate()
        self._connection.close()
