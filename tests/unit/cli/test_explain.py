"""`explain`: every signal with value, age and vote, the rule and the deadline, in words."""

from __future__ import annotations

import time

import pytest

from slurm_reclaim.model.explanation import Explanation, Vote
from slurm_reclaim.model.sample import GpuHeld

from .conftest import Shell
from .stand_in import Controller

GIB = 1 << 30
WHERE = ("GET", "/v1/sessions/12/explain")


def explanation(**changes: object) -> Explanation:
    now = time.time()
    values: dict[str, object] = {
        "job": "12",
        "state": "WARNED",
        "mode": "prod",
        "standing": "idle",
        "reason": "idle for 50m (window 45m, idle.window); last used 50m ago (cpu)",
        "idle": 3000.0,
        "due": now - 300,
        "measured": now - 8,
        "window": 2700.0,
        "grace": 900.0,
        "rule": "big cards are wanted",
        "desk": "biology",
        "why": "its rule's window",
        "action": "hibernate",
        "guard": "",
        "deadline": 1_700_000_000.0,
        "kept_until": 0.0,
        "follows": "hibernated 14:00 unless it is used or kept",
        "votes": (
            Vote("gpu", 0.0, 1.0, False, now - 3600, "quiet", "0 % on GPU 0"),
            Vote("gpu-codec", None, 1.0, False, 0.0, "unknown-but-optional", "not supported"),
            Vote("gpu-pcie", 2.0 * (1 << 20), 5.0 * (1 << 20), False, 0.0, "quiet", "over 20 ms"),
            Vote("cpu", 1.25, 0.05, True, now - 5, "use", ""),
            Vote("terminal", 0.0, 1.0, False, now - 7200, "quiet", "no input"),
        ),
        "gpus": (GpuHeld("GPU-a", "A100", 0, 80 * GIB, 40 * GIB, 2, ("Xorg (pid 9)",)),),
    }
    return Explanation(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def lines(controller: Controller, shell: Shell, **changes: object) -> dict[str, str]:
    """What is said, by the first word of each line."""
    controller.answers[WHERE] = [explanation(**changes)]
    result = shell("explain", "12")
    assert result.exit_code == 0, result.output
    return {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}


def test_each_signal_with_value_age_and_vote(controller: Controller, shell: Shell) -> None:
    said = lines(controller, shell)
    columns = {name: said[name].split(maxsplit=1)[1] for name in said}
    assert said["SIGNAL"].split() == ["SIGNAL", "VALUE", "FLOOR", "LAST", "USE", "VOTE", "WHAT"]
    assert columns["gpu"].split("  ")[0] == "0.0 %"
    assert "1h ago" in said["gpu"]
    assert said["gpu"].split()[-6:] == ["quiet", "0", "%", "on", "GPU", "0"]
    assert columns["gpu-codec"].startswith("unknown ")
    assert "none seen" in said["gpu-codec"]
    assert "unknown-but-optional" in said["gpu-codec"]
    assert "2.0 MiB/s" in said["gpu-pcie"]
    assert "5.0 MiB/s" in said["gpu-pcie"]
    assert columns["cpu"].startswith("1.25 cores")
    assert "0.05 cores" in said["cpu"]
    assert "use" in said["cpu"].split()
    assert "(average over a minute)" in said["cpu"]
    assert columns["terminal"].split()[:2] == ["0", "-"], "any input is use: there is no floor"


def test_the_rule_and_the_deadline_in_words(controller: Controller, shell: Shell) -> None:
    said = lines(controller, shell)
    assert said["job"].endswith("12 (WARNED)")
    assert "idle: idle for 50m (window 45m, idle.window)" in said["judged"]
    assert said["measured"].endswith("8s ago")
    assert "window 45m (its rule's window), grace 15m" in said["terms"]
    assert said["rule"].endswith("big cards are wanted")
    assert said["desk"].endswith("biology")
    assert said["deadline"].endswith("2023-11-14 22:13:20")
    assert said["next"].endswith("hibernated 14:00 unless it is used or kept")
    assert "0 A100 GPU-a: 40.0 GiB held (not use), 2 contexts" in said["gpus"]
    assert "others on it: Xorg (pid 9)" in said["gpus"]
    assert "guard" not in said


def test_what_stands_in_the_way(controller: Controller, shell: Shell) -> None:
    said = lines(
        controller, shell, state="ACTIVE", rule="", guard="brake: new kernel", deadline=0.0,
        kept_until=1_700_000_000.0, action="notify", measured=0.0, votes=(),
    )  # fmt: skip
    assert said["guard"].endswith("brake: new kernel")
    assert said["kept"].endswith("2023-11-14 22:13:20")
    assert said["rule"].endswith("none: the defaults of [idle]")
    assert said["terms"].endswith(", notify only")
    assert said["measured"].endswith("never")
    assert "deadline" not in said


def test_programs_get_all_of_it(controller: Controller, shell: Shell) -> None:
    controller.answers[WHERE] = [explanation()]
    found = shell.json("explain", "12")
    assert found["standing"] == "idle"
    assert found["deadline"] == 1_700_000_000.0
    assert [vote["vote"] for vote in found["votes"]][:2] == ["quiet", "unknown-but-optional"]
    assert found["votes"][1]["value"] is None
