"""Which cards a process sees, what memory it gets, and who else can tell: NVML, cuda-checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.parts.simulated_cuda.conftest import (
    GIB,
    MIB,
    SESSION,
    SIMULATED,
    Asker,
    Node,
    card,
    children,
    until,
    uuid,
)


def python(node: Node, code: str, **env: str) -> str:
    """What a process says that makes calls itself."""
    head = f"import sys; sys.path.insert(0, {str(SIMULATED)!r})\nimport cuda_session\n"
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=node.environment(**env),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SEEN = """
    try:
        print(*(card.uuid() for card in cuda_session.Session(mib=1).cards))
    except cuda_session.CudaError as error:
        print(error)
"""
NONE = "cuInit: CUDA_ERROR_NO_DEVICE (100)"


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, [0, 1]),
        ("0,1", [0, 1]),
        ("1,0", [1, 0]),
        ("1", [1]),
        (uuid(1), [1]),
        ("0,7,1", [0]),
        ("0,0,1", [0]),
        ("", []),
        ("none", []),
    ],
)
def test_cuda_visible_devices(node: Node, visible: str | None, seen: list[int]) -> None:
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert python(node, SEEN, **env) == (" ".join(map(uuid, seen)) or NONE)


def test_a_card_that_can_not_be_opened_is_none(node: Node) -> None:
    (node.place / "dev" / "nvidia0").unlink()
    assert python(node, SEEN) == uuid(1)
    assert python(node, SEEN, CUDA_VISIBLE_DEVICES="0") == uuid(1)  # numbers are of what is left


def test_no_script_no_driver(node: Node) -> None:
    (node.place / "script").unlink()
    assert python(node, SEEN) == NONE


def test_a_card_is_full_at_its_size(node: Node) -> None:
    node.says(card(0, vram=10 * MIB, used=2 * MIB))
    code = """
        session = cuda_session.Session(mib={})
        print(session.verify())
    """
    assert python(node, code.format(8)) == "True"
    taken = f"try:\n    cuda_session.Session(mib={9})\nexcept cuda_session.CudaError as error:\n"
    assert python(node, taken + "    print(error.name)") == "CUDA_ERROR_OUT_OF_MEMORY"


def test_memory_is_given_back(node: Node) -> None:
    code = """
        import ctypes
        session = cuda_session.Session(mib=1)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        def unused():
            session.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            return free.value
        before = unused()
        for card in session.cards:
            card._enter()
            session.driver.call("cuMemFree_v2", card._address)
        print(unused() - before, total.value)
    """
    assert python(node, code) == f"{MIB} {GIB}"
    assert node.device_memory() == 0


def test_an_orderly_end_leaves_nothing(node: Node) -> None:
    code = """
        session = cuda_session.Session(mib=1)
        import os
        print(len(os.listdir(os.environ["SIMULATED_GPU_MEMORY"])), session.verify())
    """
    assert python(node, code) == "2 True"
    assert node.device_memory() == 0


NVML = """
    import json, pynvml
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
    print(json.dumps([
        [pynvml.nvmlDeviceGetMemoryInfo(handle).used,
         [(p.pid, p.usedGpuMemory) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]]
        for handle in handles
    ]))
"""


def by_nvml(node: Node) -> Any:
    return json.loads(python(node, NVML))


def test_nvml_knows_who_is_on_a_card(node: Node, ask: Asker) -> None:
    node.says(card(0, "process 77 5", used=1000), card(1, used=1000))
    session = node.session("--mib", "3")
    on_card = 1000 + 3 * MIB
    there = [[on_card, [[77, 5], [session.pid, 3 * MIB]]], [on_card, [[session.pid, 3 * MIB]]]]
    gone = [[1000, [[77, 5]]], [1000, []]]
    assert by_nvml(node) == there
    assert ask("lock", session.pid) == "SUCCESS"
    assert by_nvml(node) == there
    assert ask("checkpoint", session.pid) == "SUCCESS"
    assert by_nvml(node) == gone
    ask.brought_back(session)
    assert by_nvml(node) == there
    session.process.kill()
    session.process.wait()
    assert by_nvml(node) == gone


def test_who_asks_is_not_on_a_card(node: Node, ask: Asker) -> None:
    assert by_nvml(node) == [[0, []], [0, []]]


def test_pids_are_those_of_who_asks(node: Node, ask: Asker) -> None:
    if os.geteuid() != 0:
        pytest.skip("PID namespaces need root")
    out = node.place / "out"
    words = ["--out", str(out), "--interval", "0.1", "--mib", "1"]
    apart = ["unshare", "--pid", "--fork", "--kill-child"]
    outer = node.start(*apart, sys.executable, str(SESSION), *words)
    until(lambda: out.exists() and out.read_text(), "the session's first round")
    (pid,) = children(outer.pid)
    assert out.read_text().split()[1] == "1"
    assert Path(f"/proc/{pid}/task/{ask.value('thread', pid)}").exists()
    assert by_nvml(node) == [[MIB, [[pid, MIB]]]] * 2
    for call in ("lock", "checkpoint", "restore", "unlock"):
        assert ask(call, pid) == "SUCCESS"
    seen = len(out.read_text())
    until(lambda: len(out.read_text()) > seen, "another round")


def run(node: Node, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [node.built.directory / "cuda-checkpoint", *words],
        capture_output=True,
        text=True,
        env=node.environment(),
    )
    return done.returncode, (done.stdout + done.stderr).strip()


def test_the_program(node: Node, ask: Asker) -> None:
    session = node.session()
    pid = ("--pid", str(session.pid))
    assert "--action" in run(node, "--help")[1]
    assert run(node, "--get-state", *pid) == (0, "running")
    assert run(node, "--get-restore-tid", *pid) == (0, str(ask.value("thread", session.pid)))
    assert run(node, "--action", "lock", *pid, "--timeout", "5000") == (0, "")
    assert run(node, "--action", "checkpoint", *pid) == (0, "")
    assert run(node, "--get-state", *pid) == (0, "checkpointed")
    half = f"{uuid(0)}={uuid(1)}"
    code, said = run(node, "--action", "restore", *pid, "--device-map", half)
    assert (code, "CUDA_ERROR_INVALID_VALUE" in said) == (1, True)
    both = f"{half},{uuid(1)}={uuid(0)}"
    assert run(node, "--action", "restore", *pid, "--device-map", both) == (0, "")
    assert run(node, "--action", "unlock", *pid) == (0, "")
    assert [row[3] for row in session.next_lines()] == [uuid(1), uuid(0)]
    assert run(node, "--toggle", *pid) == (0, "")
    assert run(node, "--get-state", *pid) == (0, "checkpointed")
    assert run(node, "--toggle", *pid) == (0, "")
    assert session.is_well()
    assert run(node, "--get-state", "--pid", str(node.start("sleep", "60").pid))[0] == 1
