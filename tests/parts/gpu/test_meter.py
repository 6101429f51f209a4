"""Which cards are the job's and what its processes hold (C40), shares of a card (C41)."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_reclaim.adapters.gpu.grant import grant
from slurm_reclaim.adapters.gpu.nvml_child import Node
from slurm_reclaim.model.node_session import GpuGrant
from slurm_reclaim.model.sample import GpuHeld
from tests.parts.gpu.conftest import InStep, Job, card, child_of, meter

Script = Callable[..., None]
NOW = 1_700_000_000.0
LATER = itertools.count(NOW, 60.0)  # samples that one reading has seen are no news to the next
BUSY = "samples gpu 1:80"


def read(node: Node, script: Script, *cards: str, minors: tuple[int, ...] = (0,), **more):  # type: ignore[no-untyped-def]
    now = next(LATER)
    walk = InStep(node, lambda at: script(f"now {at}", *cards))
    walk.take(now)
    measured = meter(walk, *minors, clock=lambda: now, **more)
    return measured, measured.read(10)


def test_only_the_own_card_is_read_whatever_nvml_calls_it(node: Node, script: Script) -> None:
    cards = card(1, BUSY), card(0)  # NVML's order is not that of the device files
    assert read(node, script, *cards, minors=(0,))[1]["gpu"].value == 0.0
    measured, seen = read(node, script, *cards, minors=(1,))
    assert seen["gpu"].value == 80.0
    assert [(held.uuid, held.index) for held in measured.held()] == [("GPU-1", 0)]


def test_the_busiest_of_several_cards_counts(node: Node, script: Script) -> None:
    _, seen = read(node, script, card(0, "samples gpu 1:3"), card(1, BUSY), minors=(0, 1))
    assert seen["gpu"].value == 80.0
    assert "GPU-1" in seen["gpu"].what


def test_one_unknown_card_makes_the_reading_unknown(node: Node, script: Script) -> None:
    cards = card(0), card(1, "error nvmlDeviceGetSamples UNKNOWN")
    _, seen = read(node, script, *cards, minors=(0, 1))
    assert seen["gpu"].value is None
    assert seen["gpu-pcie"].value == 0.0


def test_a_card_that_nvml_does_not_have_is_unknown(node: Node, script: Script) -> None:
    cards = card(0), card(1, "error * GPU_IS_LOST")
    _, seen = read(node, script, *cards, minors=(1,))
    assert {reading.value for reading in seen.values()} == {None}
    assert "/dev/nvidia1" in seen["gpu"].what
    assert "gpu is lost" in seen["gpu"].what


def test_the_card_is_remembered_by_its_uuid(node: Node, script: Script) -> None:
    """A driver loaded anew may number device files in another way."""
    now = NOW
    order = [card(0), card(1, BUSY)]
    walk = InStep(node, lambda at: script(f"now {at}", *order))
    walk.take(now)
    measured = meter(walk, 0, clock=lambda: now)
    assert measured.read(10)["gpu"].value == 0.0
    node._cards.clear()
    order = [card(0).replace("minor 0", "minor 1"), card(1, BUSY).replace("minor 1", "minor 0")]
    now = NOW + 5
    walk.take(now)
    assert measured.read(5)["gpu"].value == 0.0


def test_contexts_and_memory_are_the_jobs_own(node: Node, script: Script, job: Job) -> None:
    """C40: a foreign process, a dead one and one that is gone are named and not counted."""
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    gone = 4_000_000
    processes = [
        f"process {job.init} 100",
        f"process {job.inside} 200",
        f"process {os.getpid()} 400",
        f"process {zombie.pid} 800",
        f"process {gone} 1600",
    ]
    measured, seen = read(node, script, card(0, *processes), init=job.init)
    (held,) = measured.held()
    assert (held.memory, held.contexts, held.memory_total) == (300, 2, 1000)
    assert len(held.foreign) == 3
    assert f"(pid {os.getpid()})" in held.foreign[0]
    assert f"(pid {zombie.pid}, zombie)" in held.foreign[1]
    assert held.foreign[2] == f"(pid {gone}, gone)"
    assert seen["gpu"].value == 0.0
    zombie.wait()


def test_a_dead_process_of_the_session_is_no_context(node: Node, script: Script) -> None:
    """C40: killed kernel, nobody reaps it, and its memory is still on the card."""
    code = "import os, time\nif os.fork(): time.sleep(600)\nos._exit(0)"
    outer = subprocess.Popen(["unshare", "-p", "-f", "--kill-child", sys.executable, "-c", code])
    try:
        init = child_of(outer.pid)
        dead = child_of(init)
        while Path(f"/proc/{dead}/stat").read_text().split()[2] != "Z":
            time.sleep(0.02)
        measured, _ = read(node, script, card(0, f"process {dead} 50"), init=init)
        (held,) = measured.held()
        assert (held.memory, held.contexts) == (50, 0)
        assert "zombie" in held.foreign[0]
    finally:
        outer.kill()
        outer.wait()


def test_nothing_on_the_card_is_zero_contexts(node: Node, script: Script, job: Job) -> None:
    measured, seen = read(node, script, card(0), init=job.init)
    assert measured.held() == (GpuHeld("GPU-0", "Simulated GPU", 0, 1000, 0, 0),)
    assert seen["gpu"].value == 0.0


def test_what_nvml_does_not_tell_of_processes_is_unknown(
    node: Node, script: Script, job: Job
) -> None:
    failing = card(0, "error nvmlDeviceGetComputeRunningProcesses_v3 NO_PERMISSION")
    (held,) = read(node, script, failing, init=job.init)[0].held()
    assert (held.memory, held.contexts) == (-1, -1)
    blank = card(0, f"process {job.inside} 18446744073709551615")
    (held,) = read(node, script, blank, init=job.init)[0].held()
    assert (held.memory, held.contexts) == (-1, 1)


def test_the_jobs_process_on_a_card_that_is_not_its_own(
    node: Node, script: Script, job: Job
) -> None:
    """Then the map is wrong, and an idle card says nothing."""
    _, seen = read(node, script, card(0), card(1, f"process {job.inside} 1"), init=job.init)
    assert seen["gpu"].value is None
    assert "GPU-1, which is not its own" in seen["gpu"].what


def test_an_instance_of_a_split_card_is_held_and_unknown(
    node: Node, script: Script, job: Job
) -> None:
    lines = ["mig 1", "instance MIG-a 100 40 3 Part A", "instance MIG-b 100 40 4 Part B"]
    split = card(0, *lines, f"process {job.inside} 40 4 0", f"process {os.getpid()} 40 3 0")
    measured, seen = read(node, script, split, init=job.init)
    assert seen["gpu"].value is None
    assert "MIG" in seen["gpu"].what
    assert measured.held() == (GpuHeld("MIG-b", "Part B", 0, 100, 40, 1),)


@pytest.mark.parametrize("back", [3.0, 30.0, 3600.0])
def test_after_the_clock_was_put_back_it_is_known_again(
    node: Node, script: Script, back: float
) -> None:
    now = next(LATER)
    walk = InStep(node, lambda at: script(f"now {at}", card(0, BUSY)))
    walk.take(now)
    measured = meter(walk, 0, clock=lambda: now)
    assert measured.read(10)["gpu"].value == 80.0
    now -= back
    assert measured.read(1)["gpu"].value is None  # nothing was read of NVML since
    for _ in range(3):  # samples of the future are unknown for a round of its reader
        now += 1.0
        walk.take(now)
        seen = measured.read(1)["gpu"]
    assert seen.value == 80.0, seen


def test_asked_again_at_once_it_says_the_same(node: Node, script: Script) -> None:
    measured, seen = read(node, script, card(0, BUSY))
    assert measured.read(0.1) == seen


# -- cards that others use, too ---------------------------------------------------------------


def shared(node: Node, script: Script, job: Job, *lines: str):  # type: ignore[no-untyped-def]
    return read(node, script, card(0, *lines), init=job.init, granted=0, present=2, shared="shard")


def test_of_a_shared_card_only_the_own_processes_count(
    node: Node, script: Script, job: Job
) -> None:
    other = f"use {os.getpid()} 80 30 0 0"
    _, seen = shared(node, script, job, BUSY, "samples memory 1:30", other)
    assert (seen["gpu"].value, seen["gpu-memory"].value) == (0.0, 0.0)
    _, seen = shared(node, script, job, BUSY, other, f"use {job.inside} 7 2 0 0")
    assert seen["gpu"].value == 7.0


def test_without_figures_of_processes_a_busy_shared_card_is_unknown(
    node: Node, script: Script, job: Job
) -> None:
    failing = "error nvmlDeviceGetProcessUtilization NOT_SUPPORTED"
    assert shared(node, script, job, BUSY, failing)[1]["gpu"].value is None
    assert shared(node, script, job, failing)[1]["gpu"].value == 0.0  # nobody's use is not ours


def test_use_of_a_process_that_is_gone_may_have_been_ours(
    node: Node, script: Script, job: Job
) -> None:
    assert shared(node, script, job, BUSY, "use 4000000 55 0 0 0")[1]["gpu"].value == 55.0


def test_unconstrained_devices_are_told_by_the_processes(
    node: Node, script: Script, job: Job
) -> None:
    both = {"minors": (0, 1), "granted": 1, "init": job.init}
    measured, seen = read(node, script, card(0, BUSY), card(1), **both)
    assert (seen["gpu"].value, measured.held()) == (0.0, ())
    own = f"process {job.inside} 5"
    measured, seen = read(node, script, card(0, BUSY), card(1, own, "samples gpu 1:6"), **both)
    assert (seen["gpu"].value, [h.uuid for h in measured.held()]) == (6.0, ["GPU-1"])
    failing = card(1, "error nvmlDeviceGetComputeRunningProcesses_v3 UNKNOWN")
    _, seen = read(node, script, card(0), failing, **both)
    assert seen["gpu"].value is None


# -- what Slurm and the kernel say ------------------------------------------------------------


@pytest.mark.parametrize(
    ("attached", "started", "expected", "constrained"),
    [
        ({"gpus": "1", "gpu_files": "0,1"}, {"env.SLURM_JOB_GPUS": "0"},
         GpuGrant((1,), 2, 1), True),
        ({"gpus": "0,1", "gpu_files": "0,1"}, {"env.SLURM_JOB_GPUS": "0,1"},
         GpuGrant((0, 1), 2, 2), True),
        ({"gpus": "0,1", "gpu_files": "0,1"}, {"env.SLURM_JOB_GPUS": "1"},
         GpuGrant((0, 1), 2, 1), False),
        ({"gpus": "1", "gpu_files": "0,1"}, {"env.SLURM_SHARDS_ON_NODE": "2"},
         GpuGrant((1,), 2, 0, "shard"), True),
        ({"gpus": "0,1", "gpu_files": "0,1"}, {"env.SLURM_SHARDS_ON_NODE": "2"},
         GpuGrant((0, 1), 2, 0, "shard"), False),
        ({"gpus": "1", "gpu_files": "0,1"},
         {"env.SLURM_JOB_GPUS": "0", "env.CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"},
         GpuGrant((1,), 2, 1, "mps"), True),
        ({"gpus": "", "gpu_files": "0,1"}, {}, None, None),
        ({"gpus": "0,1", "gpu_files": "0,1"}, {}, None, None),  # a CPU job, not constrained
        ({"gpus": "", "gpu_files": ""}, {"env.SLURM_JOB_GPUS": "0"}, GpuGrant((), 0, 1), False),
        ({"gpus": "1", "gpu_files": "0,1"}, None, GpuGrant((1,), 2, 0, "unknown"), True),
        ({"gpus": "", "gpu_files": "0,1"}, None, None, None),
    ],
)  # fmt: skip
def test_grants(attached, started, expected, constrained) -> None:  # type: ignore[no-untyped-def]
    found = grant(attached, started)
    assert found == expected
    assert found is None or found.constrained is constrained


def test_a_job_whose_devices_nobody_sees_is_unknown(node: Node, script: Script) -> None:
    _, seen = read(node, script, card(0), minors=(), granted=1)
    assert {reading.value for reading in seen.values()} == {None}
