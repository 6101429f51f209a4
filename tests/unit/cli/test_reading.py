"""list, show, events: what is asked, what is shown, what programs get."""

from __future__ import annotations

from slurm_reclaim.errors import NotPermitted
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.session import Progress

from .conftest import Shell, session
from .stand_in import Controller

SESSIONS = ("GET", "/v1/sessions")


def test_list_shows_every_session_in_full_where_there_is_no_terminal(
    controller: Controller, shell: Shell
) -> None:
    long = "a reason that is much longer than any terminal is wide " * 4
    controller.answers[SESSIONS] = [
        [
            session(1234567890, State.HIBERNATED, checkpoint=0, checkpoint_bytes=5 << 28, node=""),
            session(12, name="x" * 60, reason=long.strip()),
        ]
    ]
    result = shell("list")
    assert result.exit_code == 0
    header, first, second = result.stdout.splitlines()
    assert header.split() == [
        "JOBID", "USER", "NAME", "STATE", "FOR", "NODE", "CHECKPOINT", "REASON",
    ]  # fmt: skip
    assert first.startswith("12 ")
    assert "x" * 60 in first
    assert first.endswith(long.strip())
    assert second.split()[0] == "1234567890"
    assert "1.2 GiB" in second
    assert "\x1b" not in result.stdout
    assert controller.asked == [("GET", "/v1/sessions?all=0", None)]


def test_list_all_asks_for_ended_ones(controller: Controller, shell: Shell) -> None:
    controller.answers[SESSIONS] = [[]]
    result = shell("list", "--all")
    assert controller.asked[0][1] == "/v1/sessions?all=1"
    assert (result.stdout, result.stderr) == ("", "no sessions\n")


def test_programs_get_the_documented_shape(controller: Controller, shell: Shell) -> None:
    controller.answers[SESSIONS] = [
        [
            session(
                17, State.HIBERNATING, array_job_id=12, array_task=4, checkpoint=0,
                checkpoint_bytes=10, progress=Progress("dump", 1, 2, 3.0), blockers=("io-uring: x",)
            )
        ]
    ]  # fmt: skip
    (shown,) = shell.json("list")["sessions"]
    assert (shown["job"], shown["job_id"], shown["state"]) == ("12_4", 17, "HIBERNATING")
    assert shown["session"] == "cluster/17.2001.1700000000"
    assert shown["checkpoint"] == {"restarts": 0, "bytes": 10}
    assert shown["progress"] == {"step": "dump", "done": 1, "total": 2, "at": 3.0}
    assert shown["blockers"] == ["io-uring: x"]
    assert shown["time_left"] is None


def test_show_says_what_the_owner_can_do(controller: Controller, shell: Shell) -> None:
    controller.answers["GET", "/v1/sessions/12"] = [
        session(12, State.HIBERNATED, checkpoint=0, checkpoint_bytes=1 << 20, node="n1")
    ]
    out = shell("show", "12").stdout
    assert "state       HIBERNATED since " in out
    assert "checkpoint  1.0 MiB, of run 0" in out
    assert "reclaim restore 12" in out
    assert "\nnode" not in out
    assert "last node   n1" in out
    assert shell.json("show", "12")["node"] is None
    assert shell.json("show", "12")["last_node"] == "n1"


def test_show_passes_an_array_task_as_slurm_writes_it(controller: Controller, shell: Shell) -> None:
    controller.answers["GET", "/v1/sessions/12_4"] = [session(17, array_job_id=12, array_task=4)]
    assert shell.json("show", "12_4")["job_id"] == 17


def test_events(controller: Controller, shell: Shell) -> None:
    controller.answers["GET", "/v1/events"] = [
        [
            Event(1700000000.0, "checkpoint-committed", "all parts verified", "c/1.2.3", 12, 2001,
                  "n1", "HIBERNATING", "REQUEUING", {"bytes": 5}, 7),
            Event(1700000001.0, "job-started-unmanaged", "no agent", job_id=13, seq=8),
            Event(1700000002.0, "adopted", "found running", job_id=14, after="ACTIVE", seq=9,
                  details={"task": "12_4"}),
        ]
    ]  # fmt: skip
    _, first, second, third = shell("events", "12", "--after", "3", "-n", "5").stdout.splitlines()
    assert first.endswith("HIBERNATING -> REQUEUING: all parts verified")
    assert second.endswith("no agent")
    assert third.endswith("-     ACTIVE: found running")
    assert [row.split()[2] for row in (first, second, third)] == ["12", "13", "12_4"]
    assert controller.asked[0][1] == "/v1/events?job=12&after=3&limit=5"
    shown = shell.json("events")["events"]
    assert (shown[0]["seq"], shown[0]["details"]) == (7, {"bytes": 5})
    assert (shown[1]["session"], shown[1]["uid"]) == (None, None)
    assert controller.asked[1][1] == "/v1/events?job=&after=0&limit=200"


def test_a_refusal_is_one_message_a_hint_and_its_exit_code(
    controller: Controller, shell: Shell
) -> None:
    controller.answers["GET", "/v1/sessions/12"] = [NotPermitted("job 12 is bob's", hint="ask bob")]
    result = shell("show", "12")
    assert result.exit_code == NotPermitted.exit_code
    assert result.stdout == ""
    assert result.stderr == "reclaim: job 12 is bob's\n  hint: ask bob\n"
    assert shell.json("show", "12", code=26) == {
        "error": "NotPermitted",
        "message": "job 12 is bob's",
        "hint": "ask bob",
        "exit_code": 26,
    }
