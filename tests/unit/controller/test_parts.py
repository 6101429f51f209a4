"""The pure parts: what fits, what is written, who waits for which order."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from slurm_reclaim.model.checkpoint import GpuCard, GpuNeeds
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.job import Job
from slurm_reclaim.model.order import Order, Verb
from slurm_reclaim.stages.fit import lacking, mismatch
from slurm_reclaim.stages.orders import OrderBook
from slurm_reclaim.stages.view import same_job
from slurm_reclaim.stages.wording import amount, merged
from tests.unit.controller.simulated import FIT, NEEDS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"kernel": "6.19.0"}, ""),
        ({"kernel": "6.18.5-9.el10.x86_64"}, ""),
        ({"kernel": "6.2.0"}, "older than 6.18.5-1"),
        ({"criu": "4.10"}, ""),
        ({"criu": "4.2"}, "older than 4.2.1"),
        ({"arch": "aarch64"}, "it is aarch64"),
        ({"cpu_flags": "avx2 avx512f sse2"}, ""),
        ({"cpu_flags": "sse2"}, "its CPU lacks avx2"),
        ({"cpu_flags": ""}, "not known"),
        ({"xsave": 2696}, "its CPU saves 2696 bytes of registers (xsave), the checkpoint's 832"),
        ({"xsave": 0}, "an unknown number of bytes"),
        ({"glibc": "2.36"}, "its glibc is 2.36, the checkpoint has 2.41 mapped"),
        ({"glibc_build": "beef"}, "is build beef, the checkpoint has build cafe mapped"),
        ({"glibc_build": ""}, ""),
        ({"mounts": None}, ""),
        ({"mounts": ("/home nfs4", "/opt xfs", "/shared lustre")}, ""),
        ({"mounts": ("/home nfs4", "/shared nfs")}, "it has no /opt (ext4) mounted"),
        ({"mounts": ("/home autofs", "/opt ext4", "/shared nfs")}, ""),
        ({"mounts": ("/home nfs4", "/opt ext4", "/shared xfs")}, "its /shared is xfs"),
        ({"memory_total": 1000}, "of memory, the checkpoint needs 1.0 MiB"),
        ({"hugepages": 2 << 20}, "in huge pages, the checkpoint needs 4.0 MiB"),
        ({"criu_ok": False, "criu_problem": "no ptrace"}, "no ptrace"),
        ({"plugin_seen": False}, "SPANK"),
        ({"store_ok": False, "store_problem": "not mounted"}, "not mounted"),
    ],
)
def test_fit(change: dict[str, object], words: str) -> None:
    found = lacking(NEEDS, replace(FIT, **change))  # type: ignore[arg-type]
    assert words in found
    assert bool(words) == bool(found)


CARD = GpuCard("GPU-a", "A100", 80 << 30)
CUDA = replace(NEEDS, gpu=GpuNeeds("580.65.06", (replace(CARD, used=60 << 30),), (310,)))
WITH_GPU = replace(FIT, gpus=(CARD,), gpu_driver="580.65.06")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"gpus": ()}, "it has no GPU, the checkpoint needs 1 x A100"),
        ({"gpu_driver": "580.82.07"}, "its NVIDIA driver is 580.82.07"),
        ({"gpu_problem": "neither cuda-bindings nor cuda-checkpoint"}, "neither cuda-bindings"),
        ({"kernel": "6.2.0"}, "older than 6.18.5-1"),
    ],
)
def test_fit_of_a_checkpoint_with_cuda_state(change: dict[str, object], words: str) -> None:
    there = replace(WITH_GPU, **change)  # type: ignore[arg-type]
    found = lacking(CUDA, there)
    assert words in found
    assert bool(words) == bool(found)
    # of a session without a GPU nothing of this is asked
    assert lacking(NEEDS, there) == lacking(NEEDS, replace(FIT, kernel=there.kernel))


def test_what_is_not_known_of_gpus_is_no_mismatch() -> None:
    assert mismatch(CUDA, replace(FIT, gpu_problem="NVML is starting")) == ""
    assert mismatch(CUDA, FIT) == "it has no GPU, the checkpoint needs 1 x A100"
    silent = replace(WITH_GPU, gpu_problem="NVML is silent", gpu_driver="590.44.01")
    assert "590.44.01" in mismatch(CUDA, silent)
    # nor is what may be mended by itself
    assert mismatch(CUDA, replace(WITH_GPU, store_ok=False, gpu_problem="x")) == ""
    assert "2.40" in mismatch(NEEDS, replace(FIT, glibc="2.40"))


def test_admin_comment_keeps_what_others_wrote() -> None:
    first = merged("JS1:H4sI=", "hibernated [now]\nreally")
    assert first == "JS1:H4sI= [slurm-reclaim: hibernated (now) really]"
    assert merged(first, "held again") == "JS1:H4sI= [slurm-reclaim: held again]"
    assert merged(first + " more", "") == "JS1:H4sI= more"
    assert merged("", "x") == "[slurm-reclaim: x]"
    assert merged(merged("", "x"), "") == ""


def test_amounts() -> None:
    sizes = [amount(size) for size in (0, 1023, 1024, 1.25 * 2**30, 2**50)]
    assert sizes == ["0 B", "1023 B", "1.0 KiB", "1.2 GiB", "1024.0 TiB"]


def row(**change: object) -> Job:
    base = Job(7, 1, "u", "n", "a", "p", "q", "RUNNING", "", 0, 100, 0, 0, 0, 0, ())
    return replace(base, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"uid": 2}, False),
        ({"submitted": 200}, False),
        ({"submitted": 200, "restarts": 1}, True),
        ({"submitted": 50, "restarts": 1}, False),
    ],
)
def test_a_number_used_again_is_told_apart(change: dict[str, object], same: bool) -> None:
    assert same_job(SessionId("lab", 7, 1, 100), 0, row(**change)) is same


def test_an_older_run_than_the_known_one_is_another_job() -> None:
    assert not same_job(SessionId("lab", 7, 1, 100), 2, row(submitted=300, restarts=1))


def order(id: str) -> Order:
    return Order(id, Verb.HIBERNATE, "s", 7, 0, "")


async def test_orders_are_held_until_there_is_one() -> None:
    book = OrderBook()
    waiting = asyncio.create_task(book.wait("n1", set(), 5))
    await asyncio.sleep(0)
    book.give("n2", 1, order("other"))
    book.give("n1", 2, order("mine"))
    assert [o.id for o in await waiting] == ["mine"]
    assert [o.id for o in await book.wait("n1", set(), 5)] == ["mine"]
    assert await book.wait("n1", {"mine"}, 0.01) == []
    assert (book.take_back("mine"), book.take_back("mine")) == (2, None)


async def test_two_who_ask_for_the_same_node_both_hear_of_it() -> None:
    book = OrderBook()
    waiting = [asyncio.create_task(book.wait("n1", set(), 5)) for _ in range(2)]
    await asyncio.sleep(0)
    book.give("n1", 1, order("a"))
    assert [len(orders) for orders in await asyncio.gather(*waiting)] == [1, 1]
