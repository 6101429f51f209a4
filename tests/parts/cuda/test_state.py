"""Taken to the host, given back, brought back; and whatever the driver does meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from slurm_reclaim.adapters.cuda.driver import Driver
from slurm_reclaim.errors import DumpFailed, GpuNotGivenBack, RestoreFailed
from slurm_reclaim.model.node_session import GpuGrant
from tests.parts.cuda.conftest import MIB, Node, Session, uuid

Start = Callable[..., Session]


def test_a_session_is_taken_and_given_back(start: Start) -> None:
    session = start("--mib", "32")
    state = session.state()
    assert state.blockers(session.members()) == []
    assert state.held == 32 * MIB
    state.take(session.members)
    assert session.states() == ["checkpointed"]
    assert session.record.gpu_freed == 32 * MIB
    needs = state.needs()
    assert needs is not None
    assert (needs.driver, [(c.uuid, c.used) for c in needs.cards]) == (
        "580.65.06",
        [(uuid(0), 32 * MIB)],
    )
    state.give_back(session.members())
    assert session.states() == ["running"]
    session.computes(on=uuid(0))
    assert (session.record.gpu_taken, session.record.gpu_freed) == ((), 0)


def test_what_is_to_be_given_back_is_durable_before_the_first_lock(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = start()
    state = session.state()
    state.blockers(session.members())
    saved_at_lock: list[tuple[int, ...]] = []
    lock = Driver.lock

    def spied(driver: Driver, *arguments: object) -> None:
        saved_at_lock.append(session.saved[-1].gpu_taken if session.saved else ())
        lock(driver, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Driver, "lock", spied)
    state.take(session.members)
    wanted = tuple(p.inner for p in session.members() if "python" in p.name)
    assert saved_at_lock == [wanted]
    # The child was told as the one at work, and that it is over.
    assert session.workers[0] > 0
    assert session.workers[-1] == 0
    state.give_back(session.members())


def test_a_session_without_cuda_is_left_alone(start: Start) -> None:
    session = start()
    others = [p for p in session.members() if "python" not in p.name]
    session.record.gpus = None
    state = session.state()
    assert state.blockers(others) == []
    state.take(lambda: others)
    assert (session.saved, session.workers, state.needs(), state.held) == ([], [], None, 0)


def test_work_that_does_not_end_leaves_it_running(start: Start, node: Node) -> None:
    session = start("--busy")
    state = session.state(lock_timeout=1.0)
    assert state.blockers(session.members()) == []
    node.write("delay cuCtxSynchronize 4")
    time.sleep(0.3)
    with pytest.raises(DumpFailed, match="did not come to an end in time"):
        state.take(session.members)
    state.give_back(session.members())
    node.write()
    assert session.states() == ["running"]
    session.computes()


CALLS = ["Lock", "Checkpoint"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("how", ["delay", "late"])
def test_a_call_that_hangs_is_ended_and_looked_at_anew(
    start: Start, node: Node, call: str, how: str
) -> None:
    session = start()
    state = session.state(lock_timeout=1.0)
    state.blockers(session.members())
    node.write(f"{how} cuCheckpointProcess{call} {1000 if how == 'delay' else 7}")
    with pytest.raises(DumpFailed, match="did not come back within"):
        state.take(session.members)
    node.write()
    state.give_back(session.members())
    assert session.states() == ["running"]
    session.computes()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("position", [0, 1])
def test_an_error_at_any_call_gives_all_back(
    start: Start, node: Node, fail_at: Callable[..., None], call: str, position: int
) -> None:
    session = start("--two", processes=2)
    state = session.state()
    assert state.blockers(session.members()) == []
    fail_at(call.lower(), position, f"error cuCheckpointProcess{call} OPERATING_SYSTEM")
    with pytest.raises(DumpFailed, match=f"{call.lower()} of .*OPERATING_SYSTEM"):
        state.take(session.members)
    assert len(session.record.gpu_taken) == 2
    node.write()
    state.give_back(session.members())
    assert session.states() == ["running", "running"]
    session.computes()


@pytest.mark.parametrize("call", ["Restore", "Unlock"])
def test_one_that_can_not_be_given_back_is_named_and_the_other_runs(
    start: Start, node: Node, fail_at: Callable[..., None], call: str
) -> None:
    session = start("--two", processes=2)
    state = session.state()
    state.blockers(session.members())
    state.take(session.members)
    fail_at(call.lower(), 0, f"error cuCheckpointProcess{call} UNKNOWN", once=False)
    with pytest.raises(GpuNotGivenBack, match=rf"{call.lower()} of python"):
        state.give_back(session.members())
    # It stays in the record: the next one to look tries again.
    assert len(session.record.gpu_taken) == 2
    node.write()
    state.give_back(session.members())
    session.computes()


def test_a_failure_that_passes_is_tried_again(start: Start, fail_at: Callable[..., None]) -> None:
    session = start()
    state = session.state()
    state.blockers(session.members())
    state.take(session.members)
    fail_at("restore", 0, "error cuCheckpointProcessRestore UNKNOWN")
    state.give_back(session.members())
    session.computes()


def test_a_card_that_stays_taken_stops_the_dump(
    start: Start, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = start()
    state = session.state()
    state.blockers(session.members())
    pid = next(p.pid for p in session.members() if "python" in p.name)
    node.cards, node.per_card = 1, [f"process {pid} 1000"]
    node.write()
    monkeypatch.setattr("slurm_reclaim.adapters.cuda.state._FREE_WITHIN", 2.0)
    with pytest.raises(DumpFailed, match=f"NVML still shows PID {pid}"):
        state.take(session.members)
    assert session.record.gpu_freed == 0
    state.give_back(session.members())
    session.computes()


def test_what_has_come_to_the_host_is_saved_though_its_card_is_lost(
    start: Start, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can't be given back any more."""
    session = start()
    state = session.state()
    assert state.blockers(session.members()) == []
    checkpoint = Driver.checkpoint

    def and_then(driver: Driver, *arguments: object) -> None:
        checkpoint(driver, *arguments)  # type: ignore[arg-type]
        node.lose(0)

    monkeypatch.setattr(Driver, "checkpoint", and_then)
    state.take(session.members)
    state.see_nobody_came()
    assert session.states() == ["checkpointed"]
    assert session.record.gpu_freed == 0, "nobody else has anything of it"
    with pytest.raises(GpuNotGivenBack):
        state.give_back(session.members())


def test_a_card_that_is_lost_before_is_not_taken_for_free(start: Start, node: Node) -> None:
    session = start()
    state = session.state()
    assert state.blockers(session.members()) == []
    node.lose(0)
    with pytest.raises(DumpFailed, match=r"checkpoint of .*UNKNOWN"):
        state.take(session.members)
    (blocker, *_) = session.state().blockers(session.members())
    assert blocker.name in ("gpu-state", "gpu-memory-unknown")


def test_one_that_comes_meanwhile_stops_the_dump(start: Start) -> None:
    session = start("--two", processes=2)
    state = session.state()
    first = session.members()[:-1]
    assert [blocker.name for blocker in state.blockers(first)] == ["gpu-unknown"]
    with pytest.raises(DumpFailed, match=r"has (begun to use CUDA|opened a GPU) meanwhile"):
        state.take(session.members)
    state.give_back(session.members())
    session.computes()


def test_it_comes_back_on_another_card(start: Start, node: Node) -> None:
    session = start("--mib", "8")
    state = session.state()
    state.blockers(session.members())
    state.take(session.members)
    needs = state.needs()
    assert needs is not None
    node.open(1)
    session.record.gpus = GpuGrant((1,), 2, 1)
    session.state().bring_back(needs, session.members())
    session.computes(on=uuid(1))


def test_each_card_of_two_has_its_place(start: Start, node: Node) -> None:
    node.cards = 4
    node.write()
    session = start("--mib", "8", granted=(0, 1))
    state = session.state()
    assert state.blockers(session.members()) == []
    assert state.held == 16 * MIB
    state.take(session.members)
    needs = state.needs()
    assert needs is not None
    node.open(1, 3)
    session.record.gpus = GpuGrant((1, 3), 4, 2)
    session.state().bring_back(needs, session.members())
    session.computes()
    assert {words[3] for words in session.rounds()[-2:]} == {uuid(1), uuid(3)}


def test_a_full_card_is_seen_before_anything_is_tried(start: Start, node: Node) -> None:
    session = start("--mib", "64")
    state = session.state()
    state.blockers(session.members())
    state.take(session.members)
    needs = state.needs()
    assert needs is not None
    node.taken = 1000 * MIB
    node.write()
    with pytest.raises(RestoreFailed, match="of memory free, the checkpoint needs"):
        session.state().bring_back(needs, session.members())
    assert session.states() == ["checkpointed"]


@pytest.mark.parametrize("call", ["Restore", "Unlock"])
@pytest.mark.parametrize("position", [0, 1])
def test_an_error_of_a_restore_is_told_and_not_tried_again(
    start: Start, fail_at: Callable[..., None], call: str, position: int
) -> None:
    session = start("--two", processes=2)
    state = session.state()
    state.blockers(session.members())
    state.take(session.members)
    needs = state.needs()
    assert needs is not None
    calls = fail_at(call.lower(), position, f"error cuCheckpointProcess{call} OUT_OF_MEMORY")
    with pytest.raises(RestoreFailed, match="out of memory"):
        session.state().bring_back(needs, session.members())
    assert calls.count(call.lower()) == position + 1  # type: ignore[attr-defined]
    assert not session.state().whole(needs, session.members())


def test_whether_a_restore_came_to_its_end(start: Start) -> None:
    session = start()
    state = session.state()
    state.blockers(session.members())
    state.take(session.members)
    needs = state.needs()
    assert needs is not None
    assert not session.state().whole(needs, session.members())
    session.state().bring_back(needs, session.members())
    assert session.state().whole(needs, session.members())
    assert not session.state().whole(needs, [])
    assert session.state().whole(None, session.members())
