"""Sessions that don't hold still, and processes of theirs that stand in each other's way."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from slurm_reclaim.adapters.cuda.driver import Driver
from slurm_reclaim.adapters.cuda.half import GpuHalf
from slurm_reclaim.adapters.cuda.state import CudaState
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.config.schema import Gpu
from slurm_reclaim.errors import DumpFailed, GpuNotGivenBack
from slurm_reclaim.model.order import Living
from tests.parts.cuda.conftest import Node, Session, until

Start = Callable[..., Session]


def test_one_that_becomes_another_program_keeps_no_other_from_its_gpu(start: Start) -> None:
    """exec ends what the driver has of a process; the PID and the start time stay."""
    session = start("--two", "--exec", processes=2)
    state = session.state()
    assert state.blockers(session.members()) == []
    state.take(session.members)
    first = min(int(words[1]) for words in session.rounds())
    gone = next(p for p in session.members() if p.inner == first)
    # Locked and copied, its other threads still run.
    os.kill(gone.pid, signal.SIGUSR1)
    until(lambda: "sleep" in tree.command_line(gone.pid))
    state.give_back(session.members())
    assert session.states() == ["running"]
    assert session.record.gpu_taken == ()


@pytest.mark.parametrize("call", ["Restore", "Unlock", "GetState"])
def test_one_that_hangs_keeps_no_other_from_its_gpu(
    start: Start, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    session = start("--two", processes=2)
    state = session.state(call_timeout=1.0)
    assert state.blockers(session.members()) == []
    state.take(session.members)
    # The first that is given back.
    stuck = max(state.taken(session.members()), key=lambda p: p.inner)
    ask = Driver._ask
    do = {"GetState": "state"}.get(call, call.lower())

    def hangs(driver: Driver, doing: str, process, limit, **more):
        if doing == do and process.pid == stuck.pid:
            session.node.write(f"delay cuCheckpointProcess{call} 1000")
        try:
            return ask(driver, doing, process, limit, **more)
        finally:
            session.node.write()

    monkeypatch.setattr(Driver, "_ask", hangs)
    with pytest.raises(GpuNotGivenBack, match=f"\\({stuck.inner}\\): .*did not come back") as told:
        state.give_back(session.members())
    assert ";" not in str(told.value)
    monkeypatch.setattr(Driver, "_ask", ask)
    other = next(p for p in state.taken(session.members()) if p.pid != stuck.pid)
    with Driver("", environment=session.node.environment) as driver:
        assert driver.state(other) == "running"
    state.give_back(session.members())
    session.computes()


@pytest.mark.parametrize("first_has_cuda", [True, False])
def test_one_that_begins_after_the_last_look_stops_the_dump(
    start: Start, first_has_cuda: bool
) -> None:
    """CRIU would save it without what it has on the card, and we would kill it then."""
    session = start("--two", "--late")
    late = max(session.members(), key=lambda p: p.inner)
    seen = session.members() if first_has_cuda else [late]
    state = session.state()
    if first_has_cuda:
        assert state.blockers(seen) == []
        state.take(lambda: seen)
        state.see_nobody_came()
    os.kill(late.pid, signal.SIGUSR1)
    until(lambda: str(late.inner) in {words[1] for words in session.rounds()})
    with pytest.raises(DumpFailed, match="has begun to use CUDA meanwhile"):
        state.see_nobody_came()
    state.give_back(session.members())
    assert session.states() == ["running", "running"]


def test_who_is_on_a_card_and_hides_it_is_named(start: Start, node: Node) -> None:
    """A copy of the driver's library by another name."""
    session = start("--two", "--late")
    hidden = max(session.members(), key=lambda p: p.inner)
    node.per_card = [f"process {hidden.pid} 1000"]
    node.cards = 1
    node.write()
    for seen in (session.members(), [hidden]):
        (found,) = session.state().blockers(seen)
        assert found.name == "gpu-unknown"
        assert f"(pid {hidden.pid})" in found.what or len(seen) == 1


def test_a_look_that_gives_back_is_waited_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would undo the next hibernation's lock, and take it off the record."""
    session = start()
    record = session.record
    here, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def slow(state: CudaState, members: object) -> None:
        here.set()
        assert go_on.wait(10)
        order.append("given back")

    def take(state: CudaState, members: object) -> None:
        order.append("taken")

    monkeypatch.setattr(CudaState, "give_back", slow)
    monkeypatch.setattr(CudaState, "take", take)
    half = [GpuHalf(record, Gpu(), lambda: None, lambda _: None, lambda: 0) for _ in range(2)]
    record.gpu_taken = (1,)
    monkeypatch.setattr(CudaState, "blockers", lambda state, members: [])
    look = threading.Thread(target=half[0].blockers, args=([],))
    look.start()
    assert here.wait(10)
    record.living = Living.DUMPING
    dump = threading.Thread(target=half[1].take, args=(lambda: [],))
    dump.start()
    dump.join(0.3)
    assert dump.is_alive()
    go_on.set()
    look.join(10)
    dump.join(10)
    assert order == ["given back", "taken"]
    # And one that comes later leaves it alone.
    half[0].blockers([])
    assert order == ["given back", "taken"]
