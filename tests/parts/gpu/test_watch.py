"""The child that holds NVML: started, silent, hanging, gone. Real processes, the real library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_reclaim.adapters.gpu import watch as watching
from slurm_reclaim.adapters.gpu.watch import NvmlWatch
from tests.parts.gpu.conftest import card, meter

Script = Callable[..., None]


def until(seen: Callable[[], object], patience: float = 20.0) -> object:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found = seen()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("not seen")


def pid_of(watch: NvmlWatch) -> int:
    return watch._child.pid if watch._child else 0


def kill(watch: NvmlWatch) -> int:
    assert watch._child is not None  # PID 0 would be this process group
    os.kill(watch._child.pid, signal.SIGKILL)
    return watch._child.pid


def test_rounds_come_and_go_on(watch: NvmlWatch, script: Script) -> None:
    rounds, _ = until(lambda: (got := watch.rounds(0.0))[0] and got)  # type: ignore[misc]
    first = rounds[-1]["at"]
    script(card(0, "samples gpu 0.1:55"))
    until(lambda: [r for r in watch.rounds(first)[0] if r["cards"][0]["gpu"][0] == 55.0])


def test_rounds_of_before_the_clock_was_put_back_are_none() -> None:
    """Else they would be told as news when it comes to their time once more."""
    now = time.time()
    watch = NvmlWatch()
    watch._partial = b"".join(b'{"at": %f}\n' % at for at in (now, now + 1, now - 60, now - 59))
    watch._lines()
    assert [round["at"] - now for round in watch._rounds] == pytest.approx([-60, -59], abs=0.01)


def test_sessions_share_one_child(watch: NvmlWatch, script: Script) -> None:
    script(card(0), card(1, "samples gpu 0.1:60"))
    first, second = meter(watch, 0), meter(watch, 1)
    until(lambda: first.read(10)["gpu"].value == 0.0)
    pid = pid_of(watch)
    assert second.read(10)["gpu"].value == 60.0
    assert pid_of(watch) == pid


def test_a_hanging_nvml_holds_nobody_up(
    watch: NvmlWatch, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = meter(watch, 0)
    until(lambda: measured.read(10)["gpu"].value == 0.0)
    monkeypatch.setattr(watching, "SILENT", 3.0)
    monkeypatch.setattr(watching, "BACK_OFF", 0.0)
    watch._start_after = 0.0
    old = pid_of(watch)
    script("delay nvmlDeviceGetSamples 1000", card(0))
    # A reading made in the last seconds may still stand; then it is unknown.
    until(lambda: measured.read(1)["gpu"].value is None)
    until(lambda: measured.read(1) and pid_of(watch) not in (0, old))
    assert not Path(f"/proc/{old}").exists()  # no pile of hanging readers
    script(card(0))
    monkeypatch.setattr(watching, "SILENT", 30.0)
    kill(watch)  # the new one hangs, too
    until(lambda: measured.read(1)["gpu"].value == 0.0)


def test_reads_of_a_hanging_nvml_are_short(
    watch: NvmlWatch, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "PATIENCE", 0.2)
    monkeypatch.setattr(watching, "START_LONGEST", 0.0)
    script("delay nvmlInitWithFlags 1000", card(0))
    watch.rounds(0.0)
    rounds, why = watch.rounds(0.0)
    assert rounds == []
    assert "NVML has not answered" in why
    assert watch._child is None


def test_many_sessions_wait_once_for_a_hanging_nvml(
    watch: NvmlWatch, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = [meter(watch, 0) for _ in range(20)]
    until(lambda: measured[0].read(10)["gpu"].value == 0.0)
    monkeypatch.setattr(watching, "PATIENCE", 2.0)
    script("delay nvmlDeviceGetSamples 1000", card(0))
    time.sleep(1.5)
    began = time.monotonic()
    for each in measured:
        each.read(10)
    assert time.monotonic() - began < 20.0  # not 20 times 2 s


def test_a_reader_that_talks_nonsense_is_ended(
    watch: NvmlWatch, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nonsense = tmp_path / "reader.py"
    nonsense.write_text("import time\nprint('[1, 2]', flush=True)\ntime.sleep(600)\n")
    monkeypatch.setattr(watching, "CHILD", nonsense)
    measured = meter(watch, 0)
    until(lambda: "nonsense" in measured.read(10)["gpu"].what)
    assert watch._child is None


def test_one_that_cant_be_killed_is_not_joined_by_a_second(
    watch: NvmlWatch, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that sleeps in the driver takes no signal: here none is sent."""
    until(lambda: watch.rounds(0.0)[0])
    child = watch._child
    assert child is not None
    os.kill(child.pid, signal.SIGSTOP)
    monkeypatch.setattr(child, "kill", lambda: None)
    monkeypatch.setattr(watching, "SILENT", 0.0)
    monkeypatch.setattr(watching, "BACK_OFF", 0.0)
    for _ in range(3):
        assert "can't be ended" in watch.rounds(time.time())[1]
        assert watch._child is child
    monkeypatch.undo()


def test_a_child_that_dies_is_replaced(
    watch: NvmlWatch, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: watch.rounds(0.0)[0])
    monkeypatch.setattr(watching, "BACK_OFF", 0.0)
    watch._start_after = 0.0
    old = kill(watch)
    until(lambda: watch.rounds(0.0)[0] and pid_of(watch) not in (0, old))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("error nvmlInitWithFlags DRIVER_NOT_LOADED", "driver not loaded"),
        ("error nvmlInitWithFlags LIB_RM_VERSION_MISMATCH", "version mismatch"),
        ("error nvmlDeviceGetCount_v2 UNKNOWN", "unknown error"),
    ],
)
def test_a_driver_that_is_not_there_is_unknown_and_looked_for_again(
    watch: NvmlWatch, script: Script, monkeypatch: pytest.MonkeyPatch, line: str, why: str
) -> None:
    script(line, card(0))
    measured = meter(watch, 0)

    def said() -> bool:
        readings = measured.read(10)
        assert {reading.value for reading in readings.values()} == {None}
        return why in readings["gpu"].what

    until(said)
    assert watch._child is None
    assert said()  # not tried again at once
    script(card(0))
    watch._start_after = 0.0
    until(lambda: measured.read(10)["gpu"].value == 0.0)


def test_no_library_is_unknown(script: Script) -> None:
    watch = NvmlWatch()
    measured = meter(watch, 0)
    until(lambda: "library not found" in measured.read(10)["gpu"].what)
    watch.close()


def test_no_nvidia_ml_py_is_unknown(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    if (
        subprocess.run(
            ["/usr/bin/python3", "-I", "-c", "import pynvml"], capture_output=True
        ).returncode
        == 0
    ):
        pytest.skip("the system's Python has nvidia-ml-py")
    watch = NvmlWatch()
    measured = meter(watch, 0)
    until(lambda: "nvidia-ml-py is not installed" in measured.read(10)["gpu"].what)
    watch.close()


def test_the_child_ends_with_its_agent(library: Path, script: Script) -> None:
    code = (
        "import sys, time\nfrom slurm_reclaim.adapters.gpu.watch import NvmlWatch\n"
        f"watch = NvmlWatch({{'LD_LIBRARY_PATH': {str(library.parent)!r},"
        f" 'NVML_SIMULATED': {os.environ['NVML_SIMULATED']!r}}})\n"
        "while not watch.rounds(0.0)[0]: time.sleep(0.1)\n"
        "print(watch._child.pid, flush=True)\ntime.sleep(600)\n"
    )
    agent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    child = int(agent.stdout.readline())
    agent.kill()
    agent.wait()
    until(lambda: not Path(f"/proc/{child}").exists())


def test_the_stand_in_is_clean(sanitized: Path, sanitizer: dict[str, str], script: Script) -> None:
    """Every call of a round, with the address and undefined behaviour sanitizers on."""
    script(
        card(
            0, "process 1 5", "use 1 2 3 4 5", "wave gpu 7 3 50", "error nvmlDeviceGetUUID TIMEOUT"
        ),
        card(1, "mig 1", "instance MIG-1 10 5 1 part", "process 1 5"),
        card(2, "process 1 5", "use 1 2 3 4 5", "wave gpu 7 3 50", samples=""),
    )
    done = subprocess.run(
        [sys.executable, "-I", str(watching.CHILD)],
        input="\n",
        capture_output=True,
        text=True,
        timeout=60,
        env={
            **sanitizer,
            "LD_LIBRARY_PATH": str(sanitized),
            "NVML_SIMULATED": os.environ["NVML_SIMULATED"],
        },
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert '"uuid":"GPU-2"' in done.stdout
