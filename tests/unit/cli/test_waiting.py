"""hibernate and restore: asked once, followed to the end, told apart by the exit code."""

from __future__ import annotations

import pytest

from slurm_reclaim.cli.meter import Pace
from slurm_reclaim.errors import (
    CancelledByActivity,
    ControllerUnavailable,
    DumpFailed,
    NotReclaimable,
    OperationFailed,
    RequeueFailed,
    RestoreFailed,
    Unavailable,
    WrongState,
)
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.session import Progress

from .conftest import Shell, session
from .stand_in import Controller

HIBERNATE = ("POST", "/v1/sessions/12/hibernate")
RESTORE = ("POST", "/v1/sessions/12/restore")
LOOK = ("GET", "/v1/sessions/12")
EVENTS = ("GET", "/v1/events")

ASKED = session(12, State.HIBERNATING, since=100.0)
HIBERNATED = session(12, State.HIBERNATED, since=200.0, checkpoint=0, checkpoint_bytes=1 << 30)
BACK = session(12, State.ACTIVE, since=200.0, reason="runs on")


def happened(kind: str, reason: str, at: float = 150.0) -> Event:
    return Event(at, kind, reason, job_id=12)


def test_hibernate_waits_until_it_is_done(controller: Controller, shell: Shell) -> None:
    controller.answers[HIBERNATE] = [ASKED]
    controller.answers[LOOK] = [
        session(12, State.HIBERNATING, progress=Progress("dump", 1, 4, 1.0)),
        session(12, State.REQUEUING, since=150.0),
        HIBERNATED,
    ]
    result = shell("hibernate", "12", "--reason", "lunch")
    assert result.exit_code == 0, result.output
    assert "job 12 is hibernated (1.0 GiB); bring it back: reclaim restore 12" in result.stdout
    assert result.stderr.splitlines()[0] == "job 12 HIBERNATING: dump: 1 B of 4 B"
    assert "job 12 REQUEUING" in result.stderr
    assert [ask for ask in controller.asked if ask[0] == "POST"] == [
        ("POST", "/v1/sessions/12/hibernate", {"reason": "lunch"})
    ]


def test_without_waiting_nothing_but_the_request_is_sent(
    controller: Controller, shell: Shell
) -> None:
    controller.answers[HIBERNATE] = [ASKED]
    result = shell("pause", "12", "--no-wait")
    assert result.exit_code == 0
    assert "asked for" in result.stdout
    assert len(controller.asked) == 1


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("preflight-refused", NotReclaimable),
        ("dump-failed", DumpFailed),
        ("activity-seen", CancelledByActivity),
        ("restore-succeeded", RequeueFailed),
    ],
)
def test_a_session_that_runs_on_says_why(
    controller: Controller, shell: Shell, kind: str, error: type[OperationFailed]
) -> None:
    controller.answers[HIBERNATE] = [ASKED]
    controller.answers[LOOK] = [ASKED, BACK]
    # An older event of another kind must not be taken for the reason.
    controller.answers[EVENTS] = [
        [happened("dump-failed", "long ago", at=50.0), happened(kind, "for this reason")]
    ]
    result = shell("hibernate", "12")
    assert result.exit_code == error.exit_code, result.output
    assert "not hibernated and runs on: for this reason" in result.stderr


def test_what_to_do_about_each_blocker_is_the_hint(controller: Controller, shell: Shell) -> None:
    controller.answers[HIBERNATE] = [ASKED]
    controller.answers[LOOK] = [BACK]
    details = {
        "blockers": ["traced", "traced", "in-kernel", "job-step"],
        "hints": ["detach the debugger", "detach the debugger", "", "end it"],
    }
    refused = Event(150.0, "preflight-refused", "traced: python (3)", job_id=12, details=details)
    controller.answers[EVENTS] = [[refused]]
    said = shell("hibernate", "12").stderr.splitlines()
    assert said[-2:] == ["  hint: traced: detach the debugger", "  hint: job-step: end it"]


@pytest.mark.parametrize(("checkpoint", "code"), [(0, 0), (-1, OperationFailed.exit_code)])
def test_queued_already_is_done_only_with_a_new_checkpoint(
    controller: Controller, shell: Shell, checkpoint: int, code: int
) -> None:
    controller.answers[HIBERNATE] = [ASKED]
    controller.answers[LOOK] = [
        session(12, State.QUEUED, since=200.0, reason="n1 died", checkpoint=checkpoint)
    ]
    assert shell("hibernate", "12").exit_code == code


def test_old_events_are_not_the_reason(controller: Controller, shell: Shell) -> None:
    controller.answers[HIBERNATE] = [ASKED]
    controller.answers[LOOK] = [BACK]
    controller.answers[EVENTS] = [[happened("activity-seen", "long ago", at=50.0)]]
    result = shell("hibernate", "12")
    assert result.exit_code == DumpFailed.exit_code
    assert "runs on: runs on" in result.stderr


def test_the_newest_reason_counts(controller: Controller, shell: Shell) -> None:
    controller.answers[HIBERNATE] = [ASKED]
    controller.answers[LOOK] = [BACK]
    controller.answers[EVENTS] = [
        [happened("dump-failed", "first"), happened("activity-seen", "second", at=160.0)]
    ]
    assert shell("hibernate", "12").exit_code == CancelledByActivity.exit_code


def test_a_request_answered_before_the_state_has_changed_is_waited_for(
    controller: Controller, shell: Shell
) -> None:
    active = session(12, State.ACTIVE, since=50.0)
    controller.answers[HIBERNATE] = [active]
    controller.answers[EVENTS] = [[]]
    controller.answers[LOOK] = [active, active, ASKED, HIBERNATED]
    assert shell("hibernate", "12").exit_code == 0


def test_restore_waits_through_the_queue(controller: Controller, shell: Shell) -> None:
    queued = session(12, State.QUEUED, since=300.0, reason="waits for a node")
    controller.answers[RESTORE] = [queued]
    controller.answers[LOOK] = [
        queued,
        session(12, State.RESTORING, since=301.0, node="n2"),
        session(12, State.ACTIVE, since=302.0, node="n2"),
    ]
    result = shell("resume", "12")
    assert result.exit_code == 0
    assert result.stdout == "job 12 is back on n2\n"
    assert "job 12 QUEUED: waits for a node" in result.stderr


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (State.HIBERNATED, RestoreFailed),
        (State.FAILED, RestoreFailed),
        (State.ENDED, OperationFailed),
    ],
)
def test_a_restore_that_fails_says_so(
    controller: Controller, shell: Shell, state: State, error: type[OperationFailed]
) -> None:
    controller.answers[RESTORE] = [session(12, State.QUEUED, since=300.0)]
    controller.answers[LOOK] = [session(12, state, since=301.0, reason="n2 has another CPU")]
    result = shell("restore", "12")
    assert result.exit_code == error.exit_code
    assert "n2 has another CPU" in result.stderr


def test_refused_at_once(controller: Controller, shell: Shell) -> None:
    controller.answers[RESTORE] = [WrongState("job 12 is ACTIVE", hint="it runs")]
    result = shell("restore", "12")
    assert result.exit_code == WrongState.exit_code
    assert len(controller.asked) == 1


def test_the_timeout_ends_the_waiting_not_the_work(controller: Controller, shell: Shell) -> None:
    controller.answers[HIBERNATE] = [ASKED]
    controller.answers[LOOK] = [ASKED]
    result = shell("hibernate", "12", "--timeout", "50ms")
    assert result.exit_code == Unavailable.exit_code
    assert "still HIBERNATING" in result.stderr
    assert "it goes on" in result.stderr


def test_a_controller_that_restarts_meanwhile_is_waited_for(
    controller: Controller, shell: Shell
) -> None:
    controller.answers[HIBERNATE] = [ASKED]
    away = ControllerUnavailable("starting")
    controller.answers[LOOK] = [ASKED, away, away, HIBERNATED]
    assert shell("hibernate", "12").exit_code == 0
    controller.answers[LOOK] = [away]
    assert shell("hibernate", "12").exit_code == ControllerUnavailable.exit_code


def test_programs_get_the_session_alone_on_standard_output(
    controller: Controller, shell: Shell
) -> None:
    controller.answers[HIBERNATE] = [ASKED]
    controller.answers[LOOK] = [ASKED, HIBERNATED]
    assert shell.json("hibernate", "12")["state"] == "HIBERNATED"


def test_time_left_is_told_from_the_pace_of_the_step() -> None:
    pace = Pace()

    def at(step: str, done: int, when: float) -> float | None:
        return pace.left(session(progress=Progress(step, done, 100, when)))

    assert at("dump", 0, 10.0) is None
    assert at("dump", 50, 15.0) == 5.0
    assert at("dump", 75, 17.5) == pytest.approx(2.5)
    assert at("verify", 0, 20.0) is None
    assert at("verify", 0, 21.0) is None


@pytest.mark.parametrize(
    ("reason", "hinted"),
    [("no node", True), ("a file changed: reclaim restore 12 --accept-changed /a", False)],
)
def test_a_reason_that_names_the_way_back_is_not_overruled(
    controller: Controller, shell: Shell, reason: str, hinted: bool
) -> None:
    controller.answers[RESTORE] = [session(12, State.QUEUED, since=100.0)]
    controller.answers[LOOK] = [session(12, State.HIBERNATED, since=200.0, reason=reason)]
    result = shell("restore", "12")
    assert result.exit_code == RestoreFailed.exit_code
    assert ("hint: try again" in result.stderr) is hinted
