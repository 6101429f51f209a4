"""What GPUs a node and a job have (C44), by the real reader on the simulated library."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_reclaim.adapters.gpu import cards, given
from slurm_reclaim.adapters.gpu.cards import AT_START, NodeCards, NodeGpus
from slurm_reclaim.adapters.gpu.watch import NvmlWatch
from slurm_reclaim.model.checkpoint import GpuCard, GpuNeeds
from slurm_reclaim.model.node_session import GpuGrant
from tests.parts.gpu.conftest import card

Script = Callable[..., None]
DRIVER = "580.65.06"
WHOLE = GpuGrant((1,), 2, 1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A node's /dev with two cards."""
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / "dev" / name).touch()
    return tmp_path


@pytest.fixture
def node(library: Path, script: Script, root: Path, watch: NvmlWatch) -> Iterator[NodeCards]:
    environment = {
        "LD_LIBRARY_PATH": str(library.parent),
        "NVML_SIMULATED": os.environ["NVML_SIMULATED"],
    }
    made = NodeCards(watch, lambda: "", environment, root)
    yield made
    if made._child is not None:
        made._child.kill()
        made._child.wait()


def two(*lines: str, driver: str = DRIVER) -> tuple[str, ...]:
    return (f"driver {driver}", card(0), card(1, *lines))


def test_a_node_tells_its_cards_and_its_driver(node: NodeCards, script: Script) -> None:
    script(*two("mig 1"))
    found = node.look(AT_START)
    assert found.driver == DRIVER
    assert found.problem == ""
    assert found.cards == (
        GpuCard("GPU-0", "Simulated GPU", 1000),
        GpuCard("GPU-1", "Simulated GPU", 1000, mig=True),
    )


def test_the_reader_ends_after_one_look(node: NodeCards, script: Script, watch: NvmlWatch) -> None:
    """A driver that something holds can't be taken out."""
    script(*two())
    assert node.look(AT_START).cards
    assert node._child is None
    assert watch.latest() is None


def test_a_node_without_nvidias_hardware_starts_nothing(
    library: Path, tmp_path: Path, watch: NvmlWatch
) -> None:
    bare = NodeCards(watch, lambda: "no", {"LD_LIBRARY_PATH": str(library.parent)}, tmp_path)
    assert bare.look(AT_START) == NodeGpus()
    assert bare._child is None


def test_a_card_without_driver_is_a_problem_and_not_no_card(
    library: Path, tmp_path: Path, watch: NvmlWatch
) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    environment = {"LD_LIBRARY_PATH": str(library.parent), "NVML_SIMULATED": "/nonexistent"}
    found = NodeCards(watch, lambda: "", environment, tmp_path).look(AT_START)
    assert found.cards == ()
    assert found.problem == "NVML: driver not loaded"


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        ("565.57.01", "its NVIDIA driver 565.57.01 is older than 570"),
        ("570.86.15", ""),
    ],
)
def test_the_driver_floor(node: NodeCards, script: Script, driver: str, words: str) -> None:
    script(*two(driver=driver))
    found = node.look(AT_START)
    assert found.driver == driver
    assert words in found.problem
    assert bool(words) == bool(found.problem)


def test_without_a_way_to_call_the_api_nothing_can_be_restored(
    node: NodeCards, script: Script, watch: NvmlWatch, root: Path
) -> None:
    script(*two())
    plain = NodeCards(watch, environment=node._environment, root=root)
    assert "not known" in plain.look(AT_START).problem
    assert len(plain._known.cards) == 2


def test_what_was_seen_once_stays_known_while_nvml_is_silent(
    node: NodeCards, script: Script, root: Path
) -> None:
    script(*two())
    before = node.look(AT_START)
    (root / "dev" / "nvidia2").touch()  # something changed: it looks at once
    script("error * UNKNOWN", *two())
    after = node.look(AT_START)
    assert (after.cards, after.driver) == (before.cards, DRIVER)
    assert "unknown error" in after.problem


def test_a_driver_that_hangs_holds_up_no_report(
    node: NodeCards, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script("delay nvmlInitWithFlags 1000", *two())
    began = time.monotonic()
    assert node.look().problem == "NVML is starting"
    assert time.monotonic() - began < 1.0
    first = node._child
    monkeypatch.setattr(cards, "START_LONGEST", 0.0)
    assert node.look().problem == "NVML does not answer"
    # one at a time, however long it hangs
    assert node._child is first


def test_a_round_of_a_session_is_taken_where_there_is_one(
    node: NodeCards, script: Script, watch: NvmlWatch
) -> None:
    script(*two())
    assert node.look(AT_START).driver == DRIVER
    script(*two(driver="590.44.01"))
    assert node.look(AT_START).driver == DRIVER  # not due
    given._round(watch)
    assert node.look(AT_START).driver == "590.44.01"


NEEDS = GpuNeeds(DRIVER, (GpuCard("GPU-7", "Simulated GPU", 1000, used=900),), (310,))


@pytest.mark.parametrize(
    ("grant", "lines", "words"),
    [
        (WHOLE, (), []),
        (None, (), ["the job was given no GPU, the checkpoint needs 1 x Simulated GPU"]),
        (
            GpuGrant((0, 1), 2, 2),
            (),
            ["the job was given 2 x Simulated GPU, the checkpoint needs 1 x Simulated GPU"],
        ),
        (WHOLE, ("mig 1",), ["GPU GPU-1 is split by MIG"]),
        (
            WHOLE,
            ("vram 1000 200",),
            ["GPU GPU-1 has 800 B of memory free, the checkpoint needs 900 B"],
        ),
        (WHOLE, ("error * GPU_IS_LOST",), ["card 1 (GPU-1): NVML: gpu is lost"]),
        (GpuGrant((5,), 6, 1), (), ["NVML has no card /dev/nvidia5"]),
        (
            GpuGrant((1,), 2, 0, "shard"),
            (),
            ["the job was given a share of a card (gres/shard); CUDA state needs a whole one"],
        ),
    ],
)
def test_the_cards_of_a_job_are_looked_at_before_a_restore(
    watch: NvmlWatch,
    script: Script,
    grant: GpuGrant | None,
    lines: tuple[str, ...],
    words: list[str],
) -> None:
    script(*two())
    given._round(watch)  # the cards are known by their names before one is lost
    script(*two(*lines))
    time.sleep(given.FRESH / 4)
    assert given.lacks(NEEDS, grant, watch) == words


def test_a_driver_of_another_version_is_refused_on_the_node_too(
    watch: NvmlWatch, script: Script
) -> None:
    script(*two(driver="590.44.01"))
    (said,) = given.lacks(NEEDS, WHOLE, watch)
    assert "its NVIDIA driver is 590.44.01, the checkpoint has 580.65.06" in said
    script("error * UNKNOWN")
    watch.close()
    (said,) = given.lacks(replace(NEEDS), WHOLE, watch)
    assert said.startswith("what GPUs the job was given is not known: NVML")
