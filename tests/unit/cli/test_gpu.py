"""GPUs in what people and programs see; upgrades; the environment of a restored session."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from slurm_reclaim.errors import BadRequest, NotPermitted
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.sample import GpuHeld
from slurm_reclaim.model.session import Unfit
from slurm_reclaim.model.upgrade import Affected, Forecast

from .conftest import Shell, session
from .stand_in import Controller

GIB = 1 << 30
HELD = GpuHeld("GPU-a", "NVIDIA A100", 1, 80 * GIB, int(38.5 * GIB), 2, ("Xorg (pid 9)",))
UNKNOWN = GpuHeld("GPU-b", "NVIDIA A100", 2, 80 * GIB)
SESSIONS = ("GET", "/v1/sessions")
UPGRADE = ("POST", "/v1/upgrade")


def test_list_shows_memory_as_held_or_freed(controller: Controller, shell: Shell) -> None:
    controller.answers[SESSIONS] = [
        [
            session(1, gpus=(HELD,)),
            session(2, gpus=(HELD, UNKNOWN)),
            session(3),
            session(4, State.HIBERNATED, freed_gpu=int(71.2 * GIB), checkpoint=0),
            # of a session that is back, what it gave back once is over
            session(5, freed_gpu=GIB),
        ]
    ]
    header, *rows = shell("list").stdout.splitlines()
    assert header.split()[-2:] == ["VRAM", "REASON"]
    at = header.index("VRAM")
    column = [row[at : header.index("REASON")].strip() for row in rows]
    assert column == ["38.5 GiB held", "held, not known how much", "-", "71.2 GiB freed", "-"]
    shown = shell.json("list")["sessions"]
    assert [s["vram_held"] for s in shown] == [int(38.5 * GIB), int(38.5 * GIB), None, None, None]
    assert shown[3]["vram_freed"] == int(71.2 * GIB)
    assert shown[1]["gpus"][1]["memory_held"] is None


def test_where_nobody_has_a_gpu_there_is_no_column(controller: Controller, shell: Shell) -> None:
    controller.answers[SESSIONS] = [[session(3)]]
    assert "VRAM" not in shell("list").stdout


def test_show_names_the_cards(controller: Controller, shell: Shell) -> None:
    controller.answers["GET", "/v1/sessions/12"] = [session(12, gpus=(HELD, UNKNOWN))]
    out = shell("show", "12").stdout
    assert "1: NVIDIA A100 (GPU-a), 38.5 GiB held of 80.0 GiB, others on it: Xorg (pid 9)" in out
    assert "2: NVIDIA A100 (GPU-b), held memory not known of 80.0 GiB" in out
    assert "used" not in out


def test_a_session_that_no_node_can_restore_says_why(controller: Controller, shell: Shell) -> None:
    why = "n1: its NVIDIA driver is 590.44.01, the checkpoint has 580.65.06 in its memory"
    stranded = session(12, State.HIBERNATED, checkpoint=0, unfit=Unfit(1700000000.0, why))
    controller.answers[SESSIONS] = [[stranded]]
    controller.answers["GET", "/v1/sessions/12"] = [stranded]
    assert f"no node can restore it now: {why}" in shell("list").stdout
    assert why in shell("show", "12").stdout
    assert shell.json("show", "12")["unfit"] == {"since": 1700000000.0, "reason": why}


LOST = Affected(
    "c/12.1.1", "12", "alice", "HIBERNATED", True, "n1: another driver", vram=GIB, told=("mail",)
)
LESS = Affected("c/13.1.1", "13", "bob", "HIBERNATED", False, "n1: another driver", left="n[2-3]")
DEAF = Affected(
    "c/14.1.1", "14", "carol", "HIBERNATED", True, "n1: x", failed=("mail: no such mailbox",)
)


def test_an_upgrade_is_planned(controller: Controller, shell: Shell) -> None:
    controller.answers[UPGRADE] = [Forecast(7, "n9", (LESS, LOST, DEAF))]
    result = shell(
        "check", "--upgrade", "--driver", "590.44.01", "--nodes", "n[1-3]", "--notify",
        "--at", "2026-12-24 18:00",
    )  # fmt: skip
    assert result.exit_code == 1
    _, first, second, third = result.stdout.splitlines()
    assert first.split()[:3] == ["12", "alice", "HIBERNATED"]
    assert "LOST" in first
    assert "LOST" in second
    assert "on n[2-3]" in third
    assert "7 hibernated sessions looked at, 2 would be lost" in result.stderr
    assert "nothing is known of n9" in result.stderr
    assert "1 owners told" in result.stderr
    assert "carol (job 14) not told: mail: no such mailbox" in result.stderr
    ((_, _, asked),) = controller.asked
    assert isinstance(asked, dict)
    assert (asked["driver"], asked["nodes"], asked["notify"]) == ("590.44.01", "n[1-3]", True)
    assert asked["deadline"] > 1.7e9


def test_an_upgrade_that_costs_nothing(controller: Controller, shell: Shell) -> None:
    controller.answers[UPGRADE] = [Forecast(7, "", (LESS,))]
    assert shell("check", "--upgrade", "--kernel", "6.19").exit_code == 0
    controller.answers[UPGRADE] = [Forecast(7)]
    found = shell.json("check", "--upgrade", "--driver", "1")
    assert found == {"looked": 7, "unknown_nodes": "", "affected": []}


@pytest.mark.parametrize(
    "words",
    [("--driver", "590"), ("--notify",), ("--upgrade", "--at", "soon")],
    ids=["driver", "notify", "at"],
)
def test_options_that_make_no_sense(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell("check", *words).exit_code == 2


def test_only_operators_may_plan(controller: Controller, shell: Shell) -> None:
    controller.answers[UPGRADE] = [NotPermitted("only root and Slurm operators may plan upgrades")]
    assert shell("check", "--upgrade", "--driver", "1").exit_code == NotPermitted.exit_code


@pytest.fixture
def shown(shell: Shell, tmp_path: Path) -> Path:
    """Where the agent would write."""
    shell.config.write_text(shell.config.read_text() + f'[agent]\nrun = "{tmp_path}"\n')
    (tmp_path / "environment").mkdir()
    return tmp_path / "environment"


def test_the_environment_can_be_taken_over_by_a_shell(
    shell: Shell, shown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    evil = "x'; touch /tmp/evil; '$(false)`false`"
    variables = {"CUDA_VISIBLE_DEVICES": "1", "SLURM_JOB_NAME": evil, "SLURM_X;id": "y"}
    (shown / "12").write_text(json.dumps({"job": 12, "variables": variables}))
    said = shell("environment")
    assert said.exit_code == 0
    script = f'{said.stdout}\nprintf \'%s|%s\' "$CUDA_VISIBLE_DEVICES" "$SLURM_JOB_NAME"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"1|{evil}"
    assert done.stderr == ""
    assert ";id" not in said.stdout
    assert shell.json("environment")["variables"]["CUDA_VISIBLE_DEVICES"] == "1"


def test_outside_of_a_session_it_says_so(
    shell: Shell, shown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert "SLURM_JOB_ID is not set" in shell("environment").stderr
    monkeypatch.setenv("SLURM_JOB_ID", "../12")
    assert shell("environment").exit_code == BadRequest.exit_code
    monkeypatch.setenv("SLURM_JOB_ID", "13")
    assert "no session of slurm-reclaim on this node" in shell("environment").stderr
