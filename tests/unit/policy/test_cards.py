"""Which cards a checkpoint fits on: the same sentences for a node and for a job (C44)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_reclaim.model import driver as drivers
from slurm_reclaim.model.checkpoint import GpuCard, GpuNeeds
from slurm_reclaim.policy.cards import lacks, node_lacks, pairs

GIB = 1 << 30
A, B, C = (GpuCard(f"GPU-{x}", "A100", 80 * GIB) for x in "abc")
L4 = GpuCard("GPU-l", "L4", 24 * GIB)
DRIVER = "580.65.06"
ONE = GpuNeeds(DRIVER, (replace(A, used=60 * GIB),), (310,))
TWO = GpuNeeds(DRIVER, (replace(A, used=60 * GIB), replace(B, used=GIB)), (310, 311))
MIXED = GpuNeeds(DRIVER, (replace(A, used=GIB), replace(L4, used=GIB)), (310,))
SMALL = GpuCard("GPU-s", "A100", 40 * GIB)


@pytest.mark.parametrize(
    ("needs", "cards", "driver", "words"),
    [
        (ONE, (A,), DRIVER, ""),
        (ONE, (L4, C), DRIVER, ""),
        (TWO, (C, B, A), DRIVER, ""),
        (MIXED, (L4, C), DRIVER, ""),
        (ONE, (), DRIVER, "it has no GPU, the checkpoint needs 1 x A100"),
        (TWO, (C,), DRIVER, "it has 1 x A100, the checkpoint needs 2 x A100"),
        (ONE, (L4,), DRIVER, "it has 1 x L4, the checkpoint needs 1 x A100"),
        (MIXED, (A, C), DRIVER, "it has 2 x A100, the checkpoint needs 1 x A100, 1 x L4"),
        (
            ONE,
            (replace(A, mig=True),),
            DRIVER,
            "it has no whole GPU (1 more split by MIG), the checkpoint needs 1 x A100",
        ),
        (
            ONE,
            (SMALL,),
            DRIVER,
            "its A100 has 40.0 GiB of memory, the checkpoint needs 60.0 GiB on one",
        ),
        # the full one needs the large card, and the other one is content with what is left
        (TWO, (SMALL, C), DRIVER, ""),
        (
            ONE,
            (A,),
            "580.82.07",
            "its NVIDIA driver is 580.82.07, the checkpoint has 580.65.06 in its memory",
        ),
        (ONE, (A,), "", "its NVIDIA driver is of an unknown version"),
    ],
)
def test_a_node(needs: GpuNeeds, cards: tuple[GpuCard, ...], driver: str, words: str) -> None:
    found = node_lacks(needs, cards, driver, "")
    assert words in found
    assert bool(words) == bool(found)


def test_below_580_only_the_very_same_cards_will_do() -> None:
    old = replace(TWO, driver="570.124.06")
    assert node_lacks(old, (C, B, A), old.driver, "") == ""
    found = node_lacks(old, (C, B), old.driver, "")
    assert found == (
        "it has other cards than the checkpoint's, and its NVIDIA driver 570.124.06 is older than "
        "580, the first that restores elsewhere"
    )
    assert lacks(old, (B, A), old.driver, "") == []
    (said,) = lacks(old, (B, C), old.driver, "")
    assert said.startswith("the job was given other cards (GPU-c); its NVIDIA driver 570.124.06")


def test_a_nodes_own_trouble_comes_last() -> None:
    """What is wrong for good is told before what may be mended."""
    assert node_lacks(ONE, (A,), DRIVER, "no cuda-bindings") == "no cuda-bindings"
    assert "1 x L4" in node_lacks(ONE, (L4,), DRIVER, "no cuda-bindings")
    assert node_lacks(ONE, (), "", "NVML is starting") == "NVML is starting"


@pytest.mark.parametrize(
    ("needs", "given", "words"),
    [
        (ONE, (C,), []),
        (TWO, (B, A), []),
        (ONE, (), ["the job was given no GPU, the checkpoint needs 1 x A100"]),
        (TWO, (A,), ["the job was given 1 x A100, the checkpoint needs 2 x A100"]),
        # a card too many would have to be in the driver's map, and was never saved
        (ONE, (A, C), ["the job was given 2 x A100, the checkpoint needs 1 x A100"]),
        (
            ONE,
            (replace(C, used=30 * GIB),),
            ["GPU GPU-c has 50.0 GiB of memory free, the checkpoint needs 60.0 GiB"],
        ),
        (ONE, (replace(C, mig=True),), ["GPU GPU-c is split by MIG"]),
    ],
)
def test_a_job(needs: GpuNeeds, given: tuple[GpuCard, ...], words: list[str]) -> None:
    assert lacks(needs, given, DRIVER, "") == words


def test_all_that_a_job_lacks_is_named_at_once() -> None:
    found = lacks(ONE, (replace(C, used=79 * GIB),), "590.44.01", "")
    assert len(found) == 2
    assert "590.44.01" in found[0]
    assert "1.0 GiB of memory free" in found[1]
    assert lacks(ONE, (A,), DRIVER, "NVML is silent") == ["NVML is silent"]


def test_every_saved_card_gets_one_and_keeps_its_own() -> None:
    assert pairs(TWO.cards, (A, B)) == {"GPU-a": "GPU-a", "GPU-b": "GPU-b"}
    # in another order the cards are the same
    assert pairs(TWO.cards, (B, A)) == {"GPU-a": "GPU-a", "GPU-b": "GPU-b"}
    # b stays where it is, so a moves
    assert pairs(TWO.cards, (B, C)) == {"GPU-a": "GPU-c", "GPU-b": "GPU-b"}
    # the fuller goes where most is free
    busy, free = replace(C, used=70 * GIB), replace(C, uuid="GPU-d")
    assert pairs(TWO.cards, (busy, free)) == {"GPU-a": "GPU-d", "GPU-b": "GPU-c"}
    assert pairs(MIXED.cards, (replace(L4, uuid="GPU-m"), C)) == {
        "GPU-a": "GPU-c",
        "GPU-l": "GPU-m",
    }
    assert pairs(ONE.cards, (L4,)) == {}


@pytest.mark.parametrize(
    ("driver", "arch", "words"),
    [
        ("570.86.15", "x86_64", ""),
        ("580.65.06", "x86_64", ""),
        ("595.44.01", "aarch64", ""),
        ("565.57.01", "x86_64", "its NVIDIA driver 565.57.01 is older than 570"),
        ("590.44.01", "aarch64", "older than 595, the first with checkpoints on aarch64"),
        ("", "x86_64", "not known"),
        ("N/A", "x86_64", "not known"),
    ],
)
def test_drivers(driver: str, arch: str, words: str) -> None:
    found = drivers.problem(driver, arch)
    assert words in found
    assert bool(words) == bool(found)


def test_advice_about_drivers_that_are_new_enough() -> None:
    assert "575.57.08 mends that" in drivers.advice("570.124.06")
    assert "the very same cards only" in drivers.advice("575.57.08")
    assert drivers.advice("580.65.06") == ""
