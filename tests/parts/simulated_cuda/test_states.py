"""A session goes from running to checkpointed and back; what is refused on the way."""

from __future__ import annotations

import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.parts.simulated_cuda.conftest import (
    MIB,
    SESSION,
    Asker,
    Node,
    Session,
    card,
    children,
    until,
)

ALL_OPEN = ["nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"]


def test_there_and_back(node: Node, ask: Asker) -> None:
    session = node.session("--mib", "4")
    assert ask.state(session.pid) == "running"
    assert session.open_devices() == ALL_OPEN
    assert node.device_memory() == 8 * MIB

    assert ask("lock", session.pid, 5000) == "SUCCESS"
    assert ask.state(session.pid) == "locked"
    assert session.stands_still()
    assert session.open_devices() == ALL_OPEN
    before = anonymous(session)

    assert ask("checkpoint", session.pid) == "SUCCESS"
    assert ask.state(session.pid) == "checkpointed"
    assert session.stands_still()
    assert session.open_devices() == []
    assert node.device_memory() == 0
    assert anonymous(session) >= before + 8 * MIB

    assert ask("restore", session.pid) == "SUCCESS"
    assert ask.state(session.pid) == "locked"
    assert session.stands_still()
    assert session.open_devices() == ALL_OPEN
    assert anonymous(session) < before + MIB

    assert ask("unlock", session.pid) == "SUCCESS"
    assert ask.state(session.pid) == "running"
    assert session.is_well()


def anonymous(session: Session) -> int:
    for line in Path(f"/proc/{session.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def test_what_verifies_also_notices(node: Node) -> None:
    """A session whose memory is changed behind its back says so."""
    session = node.session("--mib", "1")
    memory = sorted((node.place / "memory").iterdir())[0]
    with memory.open("r+b") as file:
        file.seek(12345)
        file.write(b"\xff\x00\xff\x00")
    assert not session.is_well()


@pytest.mark.parametrize(
    ("reached", "refused"),
    [
        ([], ["checkpoint", "restore", "unlock"]),
        (["lock"], ["lock", "restore"]),
        (["lock", "checkpoint"], ["lock", "checkpoint", "unlock"]),
        (["lock", "checkpoint", "restore"], ["lock", "restore"]),
    ],
)
def test_only_the_next_step_is_taken(
    node: Node, ask: Asker, reached: list[str], refused: list[str]
) -> None:
    session = node.session()
    for call in reached:
        assert ask(call, session.pid) == "SUCCESS"
    state = ask.state(session.pid)
    for call in refused:
        assert ask(call, session.pid) == "ILLEGAL_STATE"
        assert ask.state(session.pid) == state


def test_lock_gives_up_on_a_call_that_lasts(node: Node, ask: Asker) -> None:
    node.says("delay cuCtxSynchronize 3", card(0))
    session = node.session("--busy")
    began = time.monotonic()
    assert ask("lock", session.pid, 300) == "NOT_READY"
    assert 0.25 < time.monotonic() - began < 2
    assert ask.state(session.pid) == "running"
    node.says(card(0))
    assert session.is_well()
    assert ask("lock", session.pid, 5000) == "SUCCESS"


def test_lock_without_time_out_waits_for_it(node: Node, ask: Asker) -> None:
    node.says("delay cuCtxSynchronize 1.5", card(0))
    session = node.session("--busy")
    began = time.monotonic()
    assert ask("lock", session.pid) == "SUCCESS"
    assert time.monotonic() - began < 10
    assert ask.state(session.pid) == "locked"


CALLS = ["state", "thread", "lock", "checkpoint", "restore", "unlock"]


@pytest.mark.parametrize("call", CALLS)
def test_a_process_without_cuda_is_none(node: Node, ask: Asker, call: str) -> None:
    other = node.start("sleep", "600")
    assert ask(call, other.pid) == "INVALID_VALUE"
    other.kill()
    other.wait()
    assert ask(call, other.pid) == "INVALID_VALUE"


@pytest.mark.parametrize("call", CALLS)
def test_who_asks_calls_cuinit_first(node: Node, call: str) -> None:
    session = node.session()
    assert Asker(node)(call, session.pid) == "NOT_INITIALIZED"


def test_the_restore_thread_is_one_of_its_threads(node: Node, ask: Asker) -> None:
    session = node.session()
    thread = ask.value("thread", session.pid)
    assert thread != session.pid
    assert Path(f"/proc/{session.pid}/task/{thread}").exists()


def test_an_action_on_a_thread_costs_the_process(node: Node, ask: Asker) -> None:
    session = node.session()
    assert ask("lock", ask.value("thread", session.pid)) == "OPERATING_SYSTEM"
    assert session.process.wait(10) == -signal.SIGKILL


def test_a_forked_child_holds_the_files_and_has_no_state(node: Node, ask: Asker) -> None:
    session = node.session("--fork-child")
    (child,) = children(session.pid)
    held = [str(path.readlink()) for path in Path(f"/proc/{child}/fd").iterdir()]
    assert sum("/nvidia" in name for name in held) == len(ALL_OPEN)
    assert ask("thread", child) == "INVALID_VALUE"
    assert ask("state", child) == "INVALID_VALUE"
    ask.checkpointed(session)
    ask.brought_back(session)
    assert session.is_well()


def test_two_processes_are_two_sessions(node: Node, ask: Asker) -> None:
    session = node.session("--two")
    (other,) = until(lambda: children(session.pid), "the second process")
    until(lambda: session.lines(other), "its first round")
    ask.checkpointed(session)
    assert ask.state(other) == "running"
    assert ask("lock", other) == "SUCCESS"
    assert ask("unlock", other) == "SUCCESS"
    before = len(session.lines(other))
    until(lambda: len(session.lines(other)) > before + 2, "the other to go on")
    assert {row[4] for row in session.lines(other)} == {"ok"}
    ask.brought_back(session)
    assert session.is_well()


def test_of_two_who_ask_at_once_one_wins(node: Node, ask: Asker) -> None:
    session = node.session()
    node.says("late cuCheckpointProcessLock 1", card(0), card(1))
    second = Asker(node)
    assert second("init") == "SUCCESS"
    ask.send("lock", session.pid)
    second.send("lock", session.pid)
    assert sorted([ask.answer()[0], second.answer()[0]]) == ["ILLEGAL_STATE", "SUCCESS"]


THREADS = """
    import ctypes, random, threading, time
    from cuda_session import Driver, Card
    driver = Driver()
    driver.call("cuInit", 0)
    print("up", flush=True)
    def work(number):
        dice = random.Random(number)
        for turn in range(150):
            card = Card(driver, number % 2, dice.randrange(1, 60000), f"{number}/{turn}", False)
            assert card.verify()
            driver.call("cuMemFree_v2", card._address)
            driver.call("cuDevicePrimaryCtxRelease_v2", number % 2)
        done.append(number)
    done = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(sorted(done))
"""


def test_threads_are_caught_anywhere(node: Node, ask: Asker) -> None:
    """Allocating, copying and freeing at the moment of the lock."""
    head = f"import sys; sys.path.insert(0, {str(SESSION.parent)!r})\n"
    busy = node.start(sys.executable, "-c", head + textwrap.dedent(THREADS))
    assert busy.stdout is not None
    assert busy.stdout.readline() == "up\n"
    rounds = 0
    while busy.poll() is None and rounds < 200:
        for call in ("lock", "checkpoint", "restore", "unlock"):
            if ask(call, busy.pid) != "SUCCESS":
                break
        rounds += 1
        time.sleep(0.01)
    assert busy.stdout.read() == "[0, 1, 2, 3]\n"
    assert rounds > 5
    assert node.device_memory() == 0
