"""What the script makes go wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.parts.simulated_cuda.conftest import MIB, Asker, Node, card, until
from tests.parts.simulated_cuda.test_states import anonymous

CARDS = (card(0), card(1))


@pytest.mark.parametrize("call", ["Lock", "Checkpoint", "Restore", "Unlock"])
def test_a_call_that_fails_changes_nothing(node: Node, ask: Asker, call: str) -> None:
    session = node.session()
    steps = ["Lock", "Checkpoint", "Restore", "Unlock"]
    for step in steps[: steps.index(call)]:
        assert ask(step.lower(), session.pid) == "SUCCESS"
    before = ask.state(session.pid)
    node.says(f"error cuCheckpointProcess{call} UNKNOWN", *CARDS)
    assert ask(call.lower(), session.pid) == "UNKNOWN"
    assert ask.state(session.pid) == before
    node.says(*CARDS)
    for step in steps[steps.index(call) :]:
        assert ask(step.lower(), session.pid) == "SUCCESS"
    assert session.is_well()


def test_a_call_that_hangs_has_changed_nothing(node: Node, ask: Asker) -> None:
    session = node.session()
    node.says("delay cuCheckpointProcessLock 1000", *CARDS)
    hanging = Asker(node)
    assert hanging("init") == "SUCCESS"
    hanging.send("lock", session.pid)
    assert session.is_well()
    hanging.process.kill()
    assert ask.state(session.pid) == "running"


def test_an_action_goes_on_without_who_asked(node: Node, ask: Asker) -> None:
    session = node.session()
    node.says("late cuCheckpointProcessLock 2", *CARDS)
    killed = Asker(node)
    assert killed("init") == "SUCCESS"
    killed.send("lock", session.pid)
    until(lambda: ask.state(session.pid) == "locked", "the lock")
    killed.process.kill()
    node.says(*CARDS)
    began = time.monotonic()
    assert ask("unlock", session.pid) == "SUCCESS"  # once the lock has been answered
    assert time.monotonic() - began > 0.5
    assert session.is_well()


def test_an_action_is_done_after_who_asked_has_gone(node: Node, ask: Asker) -> None:
    """What the state says then need not be true a moment later."""
    session = node.session()
    assert ask("lock", session.pid) == "SUCCESS"
    node.says("slow cuCheckpointProcessCheckpoint 2", *CARDS)
    killed = Asker(node)
    assert killed("init") == "SUCCESS"
    killed.send("checkpoint", session.pid)
    time.sleep(0.5)
    killed.process.kill()
    assert ask.state(session.pid) == "locked"
    assert ask("unlock", session.pid) == "ILLEGAL_STATE"
    assert ask.state(session.pid) == "checkpointed"


def test_a_process_that_ends_under_an_action(node: Node, ask: Asker) -> None:
    session = node.session()
    node.says("late cuCheckpointProcessLock 1000", *CARDS)
    ask.send("lock", session.pid)
    time.sleep(0.5)
    session.process.kill()
    assert ask.answer()[0] == "OPERATING_SYSTEM"


def test_managed_memory_is_found_too_late(node: Node, ask: Asker) -> None:
    session = node.session("--managed")
    assert ask("lock", session.pid) == "SUCCESS"
    assert ask("checkpoint", session.pid) == "NOT_SUPPORTED"
    assert ask.state(session.pid) == "failed"
    for call in ("lock", "checkpoint", "restore", "unlock"):
        assert ask(call, session.pid) == "ILLEGAL_STATE"
    assert session.stands_still()


def test_a_checkpoint_that_breaks(node: Node, ask: Asker) -> None:
    session = node.session()
    node.says("breaks cuCheckpointProcessCheckpoint OUT_OF_MEMORY", *CARDS)
    assert ask("lock", session.pid) == "SUCCESS"
    assert ask("checkpoint", session.pid) == "OUT_OF_MEMORY"
    assert ask.state(session.pid) == "failed"


def test_a_restore_that_breaks(node: Node, ask: Asker) -> None:
    session = node.session()
    ask.checkpointed(session)
    node.says("breaks cuCheckpointProcessRestore UNKNOWN", *CARDS)
    assert ask("restore", session.pid) == "UNKNOWN"
    node.says(*CARDS)
    assert ask("restore", session.pid) == "OPERATING_SYSTEM"
    assert ask("unlock", session.pid) == "ILLEGAL_STATE"


def test_a_card_with_mig_is_not_saved(node: Node, ask: Asker) -> None:
    session = node.session()
    node.says(card(0), card(1, "mig 1"))
    assert ask("lock", session.pid) == "SUCCESS"
    assert ask("checkpoint", session.pid) == "NOT_SUPPORTED"
    assert ask.state(session.pid) == "locked"
    assert ask("unlock", session.pid) == "SUCCESS"
    assert session.is_well()


def test_a_lost_card(node: Node, ask: Asker) -> None:
    session = node.session()
    node.says(card(0, "lost"), card(1))
    assert [row[4] for row in session.next_lines()] == ["CUDA_ERROR_UNKNOWN", "ok"]
    assert ask("lock", session.pid) == "SUCCESS"
    assert ask("checkpoint", session.pid) == "UNKNOWN"
    assert ask.state(session.pid) == "failed"


def test_a_balloon_is_host_memory_until_the_restore(node: Node, ask: Asker) -> None:
    session = node.session("--mib", "1")
    node.says(f"balloon {50 * MIB}", *CARDS)
    assert ask("lock", session.pid) == "SUCCESS"
    before = anonymous(session)
    assert ask("checkpoint", session.pid) == "SUCCESS"
    assert anonymous(session) > before + 50 * MIB
    assert ask("restore", session.pid) == "SUCCESS"
    assert anonymous(session) < before + 5 * MIB
    assert ask("unlock", session.pid) == "SUCCESS"
    assert session.is_well()


def test_a_wrong_line_is_told(node: Node, ask: Asker) -> None:
    node.says("error cuInit NO_SUCH_CODE", *CARDS)
    assert Asker(node)("init") == "NO_DEVICE"
    told = Path(node.place, "stderr").read_text()
    assert "line 1 is wrong: error cuInit NO_SUCH_CODE" in told


def test_an_error_for_all_of_nvml_is_none_of_cuda(node: Node, ask: Asker) -> None:
    session = node.session()
    node.says("error * GPU_IS_LOST", *CARDS)
    assert session.is_well()
    node.says("error cuMemcpy* UNKNOWN", *CARDS)
    assert {row[4] for row in session.next_lines()} == {"CUDA_ERROR_UNKNOWN"}
