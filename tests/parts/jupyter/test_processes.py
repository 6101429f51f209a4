"""Which command lines are Jupyter's."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
import time

import pytest

from slurm_reclaim.adapters.jupyter import processes
from slurm_reclaim.adapters.jupyter.meter import JupyterMeter
from slurm_reclaim.adapters.jupyter.processes import is_kernel, is_server
from tests.parts.jupyter.session import PYTHON, Session


@pytest.mark.parametrize(
    "line",
    [
        "/opt/j/bin/python3 /opt/j/bin/jupyter-server --port=1",
        "python3.12 -I -X dev /usr/bin/jupyter-lab",
        "python -u -m jupyterlab --no-browser",
        "/opt/j/bin/python /opt/j/bin/jupyterhub-singleuser --ip=0.0.0.0",
        "python3 /opt/j/bin/batchspawner-singleuser jupyterhub-singleuser --port=0",
        "python3 -m jupyterhub.singleuser",
        "jupyter-notebook",
    ],
)
def test_servers(line: str) -> None:
    assert is_server(line.split())
    assert not is_kernel(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "srun jupyter-lab",
        "bash /usr/bin/jupyter-lab",
        "timeout 8h /opt/j/bin/jupyter-lab",
        "python3 /opt/j/bin/jupyter-server list",
        "python3 /opt/j/bin/jupyter-lab build",
        "python3 train.py --name jupyter-lab",
        "python3 -c pass jupyter-lab",
        "vim jupyter-lab",
        "",
    ],
)
def test_no_servers(line: str) -> None:
    assert not is_server(line.split())


@pytest.mark.parametrize(
    ("line", "kernel"),
    [
        ("python3 -m ipykernel_launcher -f /h/.local/share/jupyter/runtime/kernel-1.json", True),
        ("python3 -Xfrozen_modules=off -m ipykernel_launcher --f=/tmp/kernel-v2-9x.json", True),
        ("/usr/lib/R/bin/exec/R --slave -e IRkernel::main() --args /h/kernel-2.json", True),
        ("julia -i --color=yes /h/kernel.jl /h/kernel-3.json", True),
        ("python3 /opt/j/bin/jupyter-console --existing kernel-3.json", False),
        ("python3 train.py --config kernel.json", False),
        ("less kernel-3.txt", False),
    ],
)
def test_kernels(line: str, kernel: bool) -> None:
    assert is_kernel(line.split()) is kernel


ALONE = "without a server: python"


def sleeper(name: str) -> list[str]:
    """A process with an argument by which it is taken for something."""
    return [PYTHON, "-c", "import time; time.sleep(1000)", name]


def test_kernels_without_a_server_are_named_and_do_not_vote(session: Session) -> None:
    session.run(*sleeper("/tmp/kernel-v2-1.json"))
    session.run(*sleeper("/tmp/kernel-v2-2.json"))
    deadline = time.monotonic() + 10
    while (reading := session.read()) is None or reading.what.count(ALONE) != 2:
        assert time.monotonic() < deadline, reading
        time.sleep(0.1)
        session.meter = JupyterMeter(session.record(), session.census)  # which knows nothing yet
    assert (reading.value, reading.last) == (0.0, 0.0)


def become_a_kernel(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was looked at, and is due again, execs."""
    go = session.home / "go"
    subprocess.run(["mkfifo", "-m", "666", str(go)], check=True)
    script = session.home / "script"
    script.write_text(f"read x < {go}\nexec {shlex.join(sleeper('/tmp/kernel-1.json'))}\n")
    session.run("sh", str(script))
    time.sleep(0.5)
    monkeypatch.setattr(processes, "RESCAN", 0.001)
    assert [session.read(), session.read()] == [None, None]
    go.write_text("x\n")
    time.sleep(0.5)


def test_a_process_that_execs_is_seen_in_time(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    become_a_kernel(session, monkeypatch)
    reading = session.read()
    assert reading is not None
    assert ALONE in reading.what


def test_of_many_processes_each_that_execs_is_seen(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their I/O tells who may have become another program, and is read of some at a time."""
    go = session.home / "go"
    script = session.home / "script"
    kernel = shlex.join(sleeper("/tmp/kernel-1.json"))
    subprocess.run(["mkfifo", "-m", "666", str(go)], check=True)
    script.write_text(f"for i in $(seq 30); do (read x < {go}; exec {kernel}) & done; wait\n")
    session.run("sh", str(script))
    time.sleep(1)
    monkeypatch.setattr(processes, "RESCAN", 0.001)
    for _ in range(10):  # until each was read, and its command line was looked at
        assert session.read() is None
    go.write_text("x\n" * 30)
    time.sleep(1)
    reading, before = session.read(), 0
    for _ in range(10):
        reading = session.read()
        assert reading is not None
        before = max(before, len(session.meter._finder._found.kernels))
    assert before == 30


def test_who_has_read_is_looked_at_once_a_minute(session: Session) -> None:
    session.run(*sleeper("train.py"))
    finder = processes.Finder(session.init, session.census)
    finder._share = 0.5  # otherwise by the number of its init
    time.sleep(0.5)
    session.io.read(10.0)
    nothing = finder.look(1000.0)
    assert finder.unchanged(1000.0) == nothing
    # Each session has its own time in the minute.
    finder.look(1001.0)
    session.census.stirred.add(session.census.inside[0])
    due = next(s for s in range(1001, 1063) if finder.unchanged(float(s)) is None)
    finder.look(float(due))
    assert finder.unchanged(due + 100.0) == nothing
    session.census.stirred.add(session.census.inside[0])
    assert finder.unchanged(due + 58.0) == nothing
    assert finder.unchanged(due + 61.0) is None
    # And all of them now and then, whoever has read.
    session.census.stirred.clear()
    assert finder.unchanged(due + 61.0) == nothing
    assert finder.unchanged(1000.0 + processes.ALL) is None


def test_what_a_look_that_failed_was_to_see_is_seen_by_the_next(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    become_a_kernel(session, monkeypatch)
    with monkeypatch.context() as failing:
        failing.setattr(processes.Finder, "_words", lambda *_: (_ for _ in ()).throw(OSError(5)))
        reading = session.read()
        assert reading is not None
        assert reading.value is None
    reading = session.read()
    assert reading is not None
    assert ALONE in reading.what


def test_a_process_that_execs_soon_is_seen_with_the_next_look(session: Session) -> None:
    go = session.home / "go"
    subprocess.run(["mkfifo", "-m", "666", str(go)], check=True)
    script = session.home / "script"
    script.write_text(f"read x < {go}\nexec {shlex.join(sleeper('/tmp/kernel-1.json'))}\n")
    assert session.read() is None
    session.run("sh", str(script))
    time.sleep(0.5)
    assert session.read() is None
    go.write_text("x\n")
    time.sleep(0.5)
    reading = session.read()
    assert reading is not None
    assert ALONE in reading.what


def test_a_session_that_has_ended(session: Session) -> None:
    session.serve("good")
    assert session.read() is not None
    session.close()
    assert session.read() is None


@pytest.fixture
def looks(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that are started."""
    started: list[str] = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    return started


def settled(session: Session, looks: list[str]) -> None:
    """Until nothing comes or goes."""
    deadline = time.monotonic() + 10
    before = -1
    while len(looks) != before:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        before = len(looks)
        session.read()


def test_without_a_server_no_thread_is_started(
    session: Session, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    session.run(*sleeper("train.py"))
    settled(session, looks)
    assert looks
    looks.clear()
    assert [session.read() for _ in range(5)] == [None] * 5
    assert looks == []
    monkeypatch.setattr(processes, "ALL", 0.0)
    assert session.read() is None
    assert looks == ["jupyter"]  # a look may have failed for reasons of its own


def test_a_server_that_comes_and_goes_is_noticed(session: Session, looks: list[str]) -> None:
    settled(session, looks)
    assert session.read() is None
    _, pid = session.serve("good")
    settled_by = time.monotonic() + 10
    while (reading := session.read()) is None:
        assert time.monotonic() < settled_by
        time.sleep(0.1)
    assert reading.what == "kernel 333344 busy"
    looks.clear()
    assert session.read() == reading
    assert looks == ["jupyter"]  # it is asked each time
    os.kill(session.outer(pid), signal.SIGKILL)
    while session.read() is not None:
        assert time.monotonic() < settled_by + 10
        time.sleep(0.1)
    settled(session, looks)
    looks.clear()
    assert session.read() is None
    assert looks == []


def test_a_thread_that_has_answered_is_given_time_to_end(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right before a dump one look follows the other."""
    session.serve("good")
    take = JupyterMeter._take

    def slow(meter: JupyterMeter, look: object) -> None:
        take(meter, look)  # type: ignore[arg-type]
        time.sleep(0.1)

    monkeypatch.setattr(JupyterMeter, "_take", slow)
    readings = [session.meter.read(10.0)["jupyter"] for _ in range(3)]
    assert [reading.value for reading in readings] == [1.0] * 3


def test_a_look_that_does_not_end_is_no_sign_that_nothing_changed(
    session: Session, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(session, looks)
    assert session.read() is None
    go = threading.Event()
    arranged = processes.Finder._arranged

    def slow(finder: processes.Finder, known: dict[int, tuple[str, ...]]) -> processes.Found:
        go.wait(30)
        return arranged(finder, known)

    monkeypatch.setattr(processes.Finder, "_arranged", slow)
    monkeypatch.setattr("slurm_reclaim.adapters.jupyter.meter.PATIENCE", 0.2)
    session.serve("good")
    for _ in range(3):
        reading = session.read()
        assert reading is not None
        assert reading.value is None
    go.set()
    deadline = time.monotonic() + 10
    while (reading := session.read()) is None or reading.value is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert reading.value == 1.0
