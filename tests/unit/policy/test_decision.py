"""Standing, guards, limits and the brake."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import pytest

from slurm_reclaim.config.schema import Config, Limits
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.evidence import Evidence
from slurm_reclaim.model.history import History
from slurm_reclaim.model.lifecycle import Fact, State
from slurm_reclaim.model.sample import Reading
from slurm_reclaim.policy.decision import Standing, decide
from slurm_reclaim.policy.guards import Situation, first
from slurm_reclaim.policy.limits import Load, Tally, brake, full
from slurm_reclaim.policy.terms import Subject, terms

NOW = 1_800_000_000.0
TERMS = terms(Config(mode="prod"), Subject("c", "p", "q", "a", "u", "n"), NOW)
QUIET = Evidence(NOW - 5000, NOW, quiet=2000, readings={"cpu": Reading(0.0)})


def test_quiet_for_the_window_is_idle() -> None:
    assert decide(QUIET, TERMS, NOW, 60).standing is Standing.QUIET
    assert decide(QUIET, TERMS, NOW, 60).due == NOW + 700
    idle = decide(replace(QUIET, quiet=2700), TERMS, NOW, 60)
    assert (idle.standing, idle.idle) == (Standing.IDLE, 2700)
    assert idle.reason.startswith("idle for 45m")


def test_stale_or_blind_evidence_is_unknown_however_quiet_it_was() -> None:
    """S4."""
    full_window = replace(QUIET, quiet=99999)
    assert decide(full_window, TERMS, NOW + 60, 60).standing is Standing.IDLE
    assert decide(full_window, TERMS, NOW + 61, 60).standing is Standing.UNKNOWN
    assert decide(replace(full_window, blind=("gpu",)), TERMS, NOW, 60).standing is Standing.UNKNOWN
    assert decide(None, TERMS, NOW, 60).standing is Standing.UNKNOWN
    assert decide(Evidence(NOW, NOW), TERMS, NOW, 60).standing is Standing.UNKNOWN


def test_in_use_names_the_signal() -> None:
    used = replace(QUIET, quiet=0, active_at=NOW, active_by="cpu", active_what="python")
    found = decide(used, TERMS, NOW, 60)
    assert (found.standing, found.reason) == (Standing.ACTIVE, "in use: cpu python")


CALM = Situation(started=NOW - 9999, min_age=1800)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"started": NOW - 1799}, "too-young"),
        ({"kept_until": NOW + 1}, "kept"),
        ({"cooldown_until": NOW + 1}, "cool-down"),
        ({"cooldown_until": NOW + 1, "blockers": ("x",)}, "blocked"),
        ({"brake": "stop"}, "brake"),
        ({"kept_until": NOW - 1, "cooldown_until": NOW - 1, "blockers": ("x",)}, None),
        ({}, None),
    ],
)
def test_guards(change: dict[str, object], name: str | None) -> None:
    guard = first(replace(CALM, **change), TERMS, NOW)  # type: ignore[arg-type]
    assert (guard.name if guard else None) == name


def test_mode_off_is_exempt() -> None:
    guard = first(CALM, replace(TERMS, mode="off", rule="vip"), NOW)
    assert guard is not None
    assert (guard.name, guard.reason) == ("exempt", "mode off by rule vip")


@pytest.mark.parametrize(
    ("load", "word"),
    [(Load(2, 2, 2), "per_node"), (Load(0, 16, 0), "per_store"), (Load(0, 0, 500), "per_hour"),
     (Load(1, 15, 499), "")],
)  # fmt: skip
def test_limits(load: Load, word: str) -> None:
    said = full(Limits(), load)
    assert (word in said) if word else said == ""


def each(owners: int, first: int = 1) -> dict[Hashable, int]:
    """One case of so many owners."""
    return dict.fromkeys(range(first, first + owners), 1)


@pytest.mark.parametrize(
    ("tally", "word"),
    [
        (Tally(hibernated=each(7, 4), failed=each(3)), "brake_failures"),
        (Tally(hibernated=each(8, 4), failed=each(2)), ""),
        (Tally(failed=each(9)), ""),
        (Tally(ran_out=each(4, 7), kept=each(6)), "brake_keeps"),
        (Tally(ran_out=each(5, 6), kept=each(5)), ""),
        (Tally(kept=each(9)), ""),
        # Two owners with a hundred sessions, alone or among others.
        (Tally(kept={1: 100, 2: 100}), ""),
        (Tally(failed={1: 100, 2: 100}), ""),
        (Tally(ran_out=each(4, 7), kept={1: 100, 2: 100, 3: 100}), ""),
        (Tally(hibernated=each(13, 4), failed={1: 100, 2: 100, 3: 100}), ""),
        # One that is kept now and then counts by how often.
        (Tally(ran_out={1: 9, 2: 9, 3: 9}, kept={1: 1, 2: 1, 3: 1}), ""),
        (Tally(kept=each(4), ran_out={1: 1, 2: 1, 3: 1, 4: 8}), ""),
        (Tally(kept={1: 9, 2: 9, 3: 9}, ran_out={1: 1, 2: 1, 3: 1}), "27 of 30 warnings"),
    ],
)
def test_the_brake(tally: Tally, word: str) -> None:
    said = brake(Limits(), tally)
    assert (word in said) if word else said == ""


def test_history_counts_only_what_policy_began() -> None:
    history = History()

    def add(at: float, kind: Fact, before: State, session: str) -> None:
        history.add(Event(at, kind.value, "", session, uid=ord(session), before=before.value))

    add(1, Fact.DEADLINE_PASSED, State.WARNED, "a")
    add(2, Fact.CHECKPOINT_COMMITTED, State.HIBERNATING, "a")
    add(3, Fact.HIBERNATE_ASKED, State.ACTIVE, "b")
    add(4, Fact.DUMP_FAILED, State.HIBERNATING, "b")
    add(5, Fact.DEADLINE_PASSED, State.WARNED, "c")
    add(6, Fact.DUMP_FAILED, State.HIBERNATING, "c")
    add(7, Fact.ACTIVITY_SEEN, State.WARNED, "d")
    add(8, Fact.ACTIVITY_SEEN, State.IDLE, "e")
    a, c, d = map(ord, "acd")
    assert history.counts(0) == {
        "hibernated": {a: 1}, "failed": {c: 1}, "ran_out": {a: 1, c: 1}, "kept": {d: 1}
    }  # fmt: skip
    assert history.counts(6) == {"hibernated": {}, "failed": {c: 1}, "ran_out": {}, "kept": {d: 1}}
    assert history.begun(2) == 1


def test_evidence_of_the_future_is_unknown() -> None:
    """A clock that was put back: nothing newer would ever count until it is where it was."""
    known = Evidence(since=0.0, until=10_000.0, quiet=9_000.0, readings={"cpu": Reading(0.0)})
    assert decide(known, TERMS, 10_000.0, 60.0).standing is Standing.IDLE
    assert decide(known, TERMS, 9_000.0, 60.0).standing is Standing.UNKNOWN
