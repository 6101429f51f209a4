"""The journal on a real SQLite file."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Select

from slurm_reclaim.adapters.journal import statements
from slurm_reclaim.adapters.journal.engine import open_engine
from slurm_reclaim.adapters.journal.journal import SqlJournal
from slurm_reclaim.adapters.journal.lock import take_lock
from slurm_reclaim.errors import ConfigError, IllegalTransition, Refused, StoreUnavailable
from slurm_reclaim.model.catalogue import Announced, Pin
from slurm_reclaim.model.checkpoint import Needs
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.evidence import Evidence
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.lifecycle import Fact, State
from slurm_reclaim.model.session import Saved, Session

ID = SessionId("lab", 7, 2001, 1000)


def session(id: SessionId = ID, state: State = State.ACTIVE) -> Session:
    return Session(
        id=id, user="alice", name="n\nb|\x00é", account="phys", partition="main", qos="normal",
        state=state, reason="adopted", since=5.0, array_task=None, bad_nodes=("n1",),
        saved=Saved("c", "n[1-3]", 60), needs=Needs("x86_64", "6.1", "4.2.1", 9, 10),
    )  # fmt: skip


def event(kind: str = "adopted", **more: object) -> Event:
    base = Event(at=5.0, kind=kind, reason="why", session=str(ID), job_id=7, uid=2001)
    return replace(base, **more)  # type: ignore[arg-type]


@pytest.fixture
def journal(tmp_path: Path) -> SqlJournal:
    return SqlJournal(open_engine("", str(tmp_path)))


def reopened(tmp_path: Path) -> SqlJournal:
    return SqlJournal(open_engine("", str(tmp_path)))


def test_what_was_stored_comes_back_the_same(journal: SqlJournal, tmp_path: Path) -> None:
    journal.open_session(session(), event(details={"bytes": 7, "s": 1.5, "who": ["a"]}))
    again = reopened(tmp_path)
    assert again.session(ID) == session()
    assert list(again.sessions()) == [session()]
    (found,) = again.events()
    assert found == event(details={"bytes": 7, "s": 1.5, "who": ["a"]}, seq=1)


def test_a_transition_and_its_event_are_stored_together(journal: SqlJournal) -> None:
    journal.open_session(session(), event())
    asked = session(state=State.HIBERNATING)
    journal.apply(asked, Fact.HIBERNATE_ASKED, event("hibernate-asked"))
    assert journal.session(ID) == asked
    assert [e.kind for e in journal.events()] == ["adopted", "hibernate-asked"]


def test_a_transition_that_is_not_in_the_table_changes_nothing(journal: SqlJournal) -> None:
    journal.open_session(session(), event())
    with pytest.raises(IllegalTransition):
        journal.apply(session(state=State.QUEUED), Fact.RELEASED, event("released"))
    with pytest.raises(IllegalTransition):
        journal.apply(session(state=State.IDLE), Fact.JOB_GONE, event("job-gone"))
    assert journal.session(ID) == session()
    assert [e.kind for e in journal.events()] == ["adopted"]


def test_ended_sessions_are_told_apart(journal: SqlJournal) -> None:
    journal.open_session(session(), event())
    journal.apply(session(state=State.ENDED), Fact.JOB_GONE, event("job-gone"))
    later = session(SessionId("lab", 7, 2001, 2000))
    journal.open_session(later, event())
    assert list(journal.sessions()) == [later]
    assert [s.id.submitted for s in journal.of_job(7)] == [1000, 2000]
    assert len([*journal.sessions(), *journal.ended()]) == 2


def test_events_page_in_order(journal: SqlJournal) -> None:
    for number in range(10):
        journal.note(event(f"note-{number}", uid=number % 2))
    assert [e.seq for e in journal.events(limit=3)] == [8, 9, 10]
    assert [e.seq for e in journal.events(after=2, limit=3)] == [3, 4, 5]
    assert [e.uid for e in journal.events(uid=1)] == [1] * 5
    assert not journal.events(job_id=8)
    journal.note(event("later", at=7.0))
    journal.trim(before=6.0)
    assert [e.kind for e in journal.events()] == ["later"]
    journal.trim(before=8.0)
    assert not journal.events()


def test_intents_stay_until_settled(journal: SqlJournal, tmp_path: Path) -> None:
    first = journal.intend(ID, "requeue", "{}")
    second = journal.intend(ID, "release", "{}")
    journal.settle(first, "done")
    assert reopened(tmp_path).unsettled() == [(second, str(ID), "release", "{}")]
    other = SessionId("lab", 8, 2001, 1000)
    journal.intend(other, "restore", "0")
    assert journal.unsettled(ID) == [(second, str(ID), "release", "{}")]


def plan(journal: SqlJournal, query: Select[Any], values: dict[str, object]) -> str:
    """How SQLite goes about it."""
    bound = query.params(values)
    text = bound.compile(journal._engine, compile_kwargs={"literal_binds": True})
    with journal._engine.connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}").all()
    return " ".join(str(row[3]) for row in rows)


def test_nothing_that_is_asked_all_the_time_reads_all_that_ever_was(tmp_path: Path) -> None:
    """Also in a database that an earlier version has made: its indexes are added."""
    journal = SqlJournal(open_engine("", str(tmp_path)))
    with journal._engine.begin() as connection:
        for index in ("intents_by_settled", "sessions_by_uid", "sessions_by_end"):
            connection.exec_driver_sql(f"DROP INDEX {index}")
    journal = reopened(tmp_path)
    asked: list[tuple[Select[Any], dict[str, object]]] = [
        (statements.UNSETTLED_INTENTS, {}),
        (statements.UNSETTLED_INTENTS_OF, {"of": "a"}),
        (statements.ENDED_SESSIONS, {"most": 5}),
        (statements.ENDED_SESSIONS_OF_USER, {"most": 5, "of": 1}),
        (statements.SESSIONS_OF_JOB, {"job": 7}),
    ]
    for query, values in asked:
        found = plan(journal, query, values)
        assert "USING INDEX" in found
        assert "SCAN" not in found
        # The last that ended are at the end of the index, and need not be sorted.
        assert "most" not in values or "TEMP B-TREE" not in found


def test_ended_sessions_are_many_and_asked_for_by_number(journal: SqlJournal) -> None:
    for number in range(6):
        one = replace(session(SessionId("lab", number, 2001 + number % 2, 1)), since=float(number))
        one = replace(one, array_job_id=0 if number < 3 else 3, array_task=number)
        journal.open_session(one, event())
        if number != 5:
            over = replace(one, state=State.ENDED, since=10.0 + number)
            journal.apply(over, Fact.JOB_GONE, event("job-gone"))
    assert [s.id.job_id for s in journal.ended(limit=3)] == [2, 3, 4]
    assert [s.id.job_id for s in journal.ended(uid=2002)] == [1, 3]
    assert [s.id.job_id for s in journal.of_array(3, 4)] == [4]
    assert [s.id.job_id for s in journal.of_array(3, 5, 2002)] == [5]
    assert journal.of_array(3, 4, 2002) == []


def test_a_power_failure_can_not_lose_what_was_answered(journal: SqlJournal) -> None:
    with journal._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_the_file_is_its_owners_alone(journal: SqlJournal, tmp_path: Path) -> None:
    assert (tmp_path / "journal.sqlite").stat().st_mode & 0o077 == 0


def test_a_newer_journal_is_refused(journal: SqlJournal, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "journal.sqlite") as raw:
        raw.execute("UPDATE meta SET value='99' WHERE name='schema'")
    with pytest.raises(ConfigError, match="version 99"):
        open_engine("", str(tmp_path))


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        open_engine("", str(tmp_path / "nowhere"))


@pytest.mark.parametrize("url", ["nonsense", "oracle9://x/y"])
def test_an_unusable_url_is_a_mistake_of_the_configuration(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"controller\.journal"):
        open_engine(url, str(tmp_path))


def test_the_lock_of_a_killed_controller_is_free(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite.lock").write_text("pid 1 on elsewhere")
    lock = take_lock(open_engine("", str(tmp_path)))
    with pytest.raises(Refused):
        take_lock(open_engine("", str(tmp_path)))
    lock.release()


def test_evidence_that_can_not_be_read_is_measured_anew(journal: SqlJournal) -> None:
    """JSON has no word for infinity."""
    other = replace(ID, job_id=8)
    good = Evidence(1.0, 2.0)
    journal.keep_evidence({ID: Evidence(1.0, 2.0, averages={"cpu": math.inf}), other: good}, ())
    assert journal.evidence() == {other: good}


def test_pins_of_both_sides_and_what_was_announced(journal: SqlJournal, tmp_path: Path) -> None:
    mine = Pin(str(ID), 0, False, "alice", 1.0, "thesis")
    theirs = replace(mine, admin=True, by="olga")
    for pin in (mine, theirs, replace(mine, reason="again"), replace(mine, restarts=1)):
        journal.pin(pin)
    journal.unpin(replace(mine, restarts=1))
    again = reopened(tmp_path)
    assert sorted(again.pins(), key=lambda pin: pin.admin) == [
        replace(mine, reason="again"),
        theirs,
    ]
    said = Announced(str(ID), 5.0, 100.0, 10.0, 1, ("mail",))
    journal.announce(said)
    journal.announce(replace(said, times=2))
    assert again.announced() == {str(ID): replace(said, times=2)}
    # Of a session that has ended it says nothing to anybody.
    journal.open_session(session(), event())
    journal.trim(0.0)
    assert list(again.announced()) == [str(ID)]
    journal.apply(session(state=State.ENDED), Fact.JOB_GONE, event("job-gone"))
    journal.trim(0.0)
    assert not again.announced()


def test_evidence_is_kept_until_it_changes_or_goes(journal: SqlJournal) -> None:
    one, two = replace(ID, job_id=8), replace(ID, job_id=9)
    journal.keep_evidence({ID: Evidence(1.0, 2.0), one: Evidence(1.0, 3.0)}, ())
    journal.keep_evidence({one: Evidence(1.0, 4.0), two: Evidence(1.0, 5.0)}, {ID})
    assert journal.evidence() == {one: Evidence(1.0, 4.0), two: Evidence(1.0, 5.0)}
    journal.keep_evidence({}, ())
    assert len(journal.evidence()) == 2
    journal.open_session(session(one), event())
    journal.trim(0.0)
    assert journal.evidence() == {one: Evidence(1.0, 4.0)}  # of a session that lives


@pytest.mark.parametrize(
    ("table", "column"),
    [("sessions", "body"), ("events", "details"), ("pins", "body"), ("announced", "body")],
)
@pytest.mark.parametrize("damage", ["{", '{"id": [[]]}', "[]", "\x00", b"\xff\xfe"])
def test_a_row_that_can_not_be_read_is_named(
    journal: SqlJournal, tmp_path: Path, table: str, column: str, damage: Any
) -> None:
    """Not skipped: a pin, or a session that sleeps, would be forgotten."""
    journal.open_session(session(), event(details={"a": 1}))
    journal.pin(Pin(str(ID), 0, False, "alice", 5.0))
    journal.announce(Announced(str(ID), 1.0, 2.0, 3.0))
    raw = sqlite3.connect(tmp_path / "journal.sqlite")
    raw.execute(f"UPDATE {table} SET {column} = ?", (damage,))
    raw.commit()
    read = {"sessions": journal.sessions, "events": journal.events, "pins": journal.pins,
            "announced": journal.announced}[table]  # fmt: skip
    with pytest.raises(StoreUnavailable, match=r"can't be read|did not answer"):
        read()


def test_a_number_that_no_database_holds(journal: SqlJournal) -> None:
    with pytest.raises(StoreUnavailable, match="no room for such a number"):
        journal.note(event(job_id=1 << 70))
