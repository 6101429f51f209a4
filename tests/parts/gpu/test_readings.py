"""What a card says, and what is unknown about it (C23, C25, C26): the real nvidia-ml-py."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from slurm_reclaim.adapters.gpu import nvml_child
from slurm_reclaim.adapters.gpu.nvml_child import Node
from tests.parts.gpu.conftest import InStep, card, meter

Script = Callable[..., None]
NOW = 1_700_000_000.0
SIGNALS = ("gpu", "gpu-memory", "gpu-codec", "gpu-pcie")


def look(node: Node, script: Script, *lines: str, **more: str) -> dict:
    script(f"now {NOW}", card(0, *lines, **more))
    return node.round(NOW)["cards"][0]


def test_an_idle_card_is_zero_everywhere_and_known(node: Node, script: Script) -> None:
    seen = look(node, script)
    assert {name: seen[name][0] for name in SIGNALS} == dict.fromkeys(SIGNALS, 0.0)
    assert seen["uuid"] == "GPU-0"
    assert seen["memory"] == [1000, 10]


@pytest.mark.parametrize(
    ("line", "signal", "value"),
    [
        ("samples gpu 3:7 2:93 1:0", "gpu", 93.0),
        ("samples memory 0.5:35", "gpu-memory", 35.0),  # C26: the memory bus alone
        ("samples encoder 0.5:50", "gpu-codec", 50.0),
        ("samples decoder 0.5:20", "gpu-codec", 20.0),
        ("pcie 3000000 1000000", "gpu-pcie", 4_096_000_000.0),
    ],
)
def test_each_kind_of_use_is_seen_alone(
    node: Node, script: Script, line: str, signal: str, value: float
) -> None:
    seen = look(node, script, line)
    assert {name: seen[name][0] for name in SIGNALS} == {
        **dict.fromkeys(SIGNALS, 0.0),
        signal: value,
    }


def test_memory_held_is_not_use(node: Node, script: Script) -> None:
    seen = look(node, script, "vram 1000 900", "process 4711 900")
    assert {seen[name][0] for name in SIGNALS} == {0.0}
    assert seen["processes"] == [[4711, 900, 0xFFFFFFFF]]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("error nvmlDeviceGetSamples UNKNOWN", "unknown error"),
        ("error nvmlDeviceGetSamples TIMEOUT", "timeout"),
        ("samples gpu 1:200", "absurd value, 200 %"),
        ("samples gpu 1:2147483632", "blank"),
        ("samples gpu 1:4294967295", "blank"),
        ("samples gpu 300:0 60:0", "stale, newest sample 60 s old"),
        ("samples gpu -3600:0", "3600 s in the future"),
    ],
)
def test_what_is_no_figure_is_unknown(node: Node, script: Script, line: str, why: str) -> None:
    value, said = look(node, script, line)["gpu"]
    assert value is None
    assert why in said


def test_without_a_buffer_the_gauge_counts_and_says_so(node: Node, script: Script) -> None:
    seen = look(node, script, "rates 44 12 0 3", samples="")
    assert seen["gpu"] == [44.0, "momentary, no sample buffer"]
    assert seen["gpu-memory"][0] == 12.0
    assert seen["gpu-codec"][0] == 3.0
    assert node.round(NOW)["gauge"] is True


def test_neither_buffer_nor_gauge_is_unknown_not_zero(node: Node, script: Script) -> None:
    seen = look(
        node,
        script,
        "error nvmlDeviceGetUtilizationRates NOT_SUPPORTED",
        "error nvmlDeviceGetEncoderUtilization NOT_SUPPORTED",
        "error nvmlDeviceGetPcieThroughput NOT_SUPPORTED",
        samples="",
    )
    assert {name: seen[name][0] for name in SIGNALS} == dict.fromkeys(SIGNALS)
    assert all("not supported" in seen[name][1] for name in SIGNALS)


@pytest.mark.parametrize("blank", ["4294967295", "2147483632", "200"])
def test_an_absurd_gauge_is_unknown(node: Node, script: Script, blank: str) -> None:
    seen = look(node, script, f"rates {blank} 0 0 0", samples="")
    assert seen["gpu"][0] is None
    assert seen["gpu-memory"][0] == 0.0


def test_a_blank_pcie_counter_is_unknown(node: Node, script: Script) -> None:
    assert look(node, script, "pcie 4294967295 0")["gpu-pcie"][0] is None


def test_the_whole_of_a_split_card_is_unknown(node: Node, script: Script) -> None:
    """A MIG parent says 0 with confidence."""
    seen = look(node, script, "mig 1", "instance MIG-7 100 40 3 Simulated GPU MIG 1g.10gb")
    assert {name: seen[name][0] for name in SIGNALS} == dict.fromkeys(SIGNALS)
    assert "MIG" in seen["gpu"][1]
    assert seen["instances"] == [["MIG-7", "Simulated GPU MIG 1g.10gb", 100, 3]]


def test_a_card_whose_mig_mode_fails_may_be_split(node: Node, script: Script) -> None:
    assert look(node, script, "error nvmlDeviceGetMigMode UNKNOWN")["gpu"][0] is None


def test_a_lost_card_says_so_and_the_others_go_on(node: Node, script: Script) -> None:
    script(f"now {NOW}", card(0), card(1))
    node.round(NOW)
    script(f"now {NOW}", card(0), card(1, "error * GPU_IS_LOST"))
    first, second = node.round(NOW)["cards"]
    assert first["gpu"][0] == 0.0
    assert "lost" in second["error"]
    assert (second["uuid"], second["minor"]) == ("GPU-1", 1)


def test_a_card_that_is_lost_from_the_start_has_no_name(node: Node, script: Script) -> None:
    script(card(0), card(1, "error * GPU_IS_LOST"))
    assert node.round(NOW)["cards"][1] == {
        "index": 1,
        "uuid": "",
        "model": "",
        "minor": -1,
        "error": "NVML: gpu is lost",
    }


def test_after_a_while_a_lost_card_is_looked_for_anew(
    node: Node, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(f"now {NOW}", card(0, "samples gpu 1:5"))
    node.round(NOW)
    script(f"now {NOW}", card(0, "samples gpu 1:5", "error nvmlDeviceGetMigMode GPU_IS_LOST"))
    assert "error" in node.round(NOW)["cards"][0]
    script(f"now {NOW + 1}", card(0, "samples gpu 1:0"))
    assert "error" in node.round(NOW + 1)["cards"][0]
    monkeypatch.setattr(nvml_child, "ANEW_AFTER", 0.0)
    node.round(NOW + 1)  # shuts NVML down and opens it
    assert node.round(NOW + 1)["cards"][0]["gpu"][0] == 0.0


def test_no_news_since_the_last_look_is_what_was_last_seen(node: Node, script: Script) -> None:
    script(f"now {NOW}", card(0, "samples gpu 1:5"))
    assert node.round(NOW)["cards"][0]["gpu"][0] == 5.0
    script(f"now {NOW + 1}", card(0, "samples gpu 2:5"))
    assert node.round(NOW + 1)["cards"][0]["gpu"][0] == 5.0


def test_a_sample_is_counted_once(node: Node, script: Script) -> None:
    script(f"now {NOW}", card(0, "samples gpu 2:90 1:0"))
    assert node.round(NOW)["cards"][0]["gpu"][0] == 90.0
    script(f"now {NOW + 1}", card(0, "samples gpu 3:90 2:0 0.5:0"))
    assert node.round(NOW + 1)["cards"][0]["gpu"][0] == 0.0


def test_a_process_list_that_fails_is_none(node: Node, script: Script) -> None:
    seen = look(node, script, "error nvmlDeviceGetComputeRunningProcesses_v3 NO_PERMISSION")
    assert seen["processes"] is None
    assert "permission" in seen["processes_error"]


def stroll(
    node: Node, script: Script, text: str, seconds: int, poll: int, step: int = 5
) -> list[float | None]:
    """Readings of SM every `poll` seconds while the child takes a round every `step`."""
    now = NOW
    walk = InStep(node, lambda at: script(f"now {at}", text))
    measured = meter(walk, 0, present=1, clock=lambda: now)
    found = []
    for passed in range(0, seconds + 1, step):
        now = NOW + passed
        walk.take(now)
        if passed and passed % poll == 0:
            found.append(measured.read(poll)["gpu"].value)
    return found


@pytest.mark.parametrize("poll", [30, 60])
def test_bursts_between_polls_count(node: Node, script: Script, poll: int) -> None:
    """C25, series A: 1 s at 100 % every 40 s. No 40 s may look idle."""
    seen = stroll(node, script, card(0, "wave gpu 40 1 100"), 1200, poll)
    assert set(seen) <= {0.0, 100.0}
    for first, second in pairwise(seen):
        assert 100.0 in (first, second)


def test_the_gauge_alone_would_have_missed_them(node: Node, script: Script) -> None:
    """What the buffers are for: a gauge read at the same times says 0 for ever."""
    seen = stroll(node, script, card(0, samples=""), 300, 30)
    assert set(seen) == {0.0}


def test_use_that_is_over_is_over(node: Node, script: Script) -> None:
    """C25, series B: what was used for long goes to 0 with the first whole interval after."""
    assert set(stroll(node, script, card(0, "wave gpu 9 9 90"), 600, 30)) == {90.0}
    seen = stroll(node, script, card(0, "wave gpu 9 0 90"), 600, 30)
    assert set(seen[1:]) == {0.0}


def test_a_pause_of_the_reader_is_unknown(node: Node, script: Script) -> None:
    seen = stroll(node, script, card(0, "wave gpu 40 1 100"), 240, 60, step=60)
    assert set(seen[1:]) == {None}
