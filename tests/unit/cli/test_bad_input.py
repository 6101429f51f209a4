"""One clear message and its own exit code for whatever goes wrong; never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from slurm_reclaim.cli.app import App
from slurm_reclaim.cli.main import reclaim

from .conftest import Shell
from .stand_in import Controller, StandInMunge


@pytest.mark.parametrize("command", ["show", "hibernate", "restore", "events"])
@pytest.mark.parametrize(
    ("job", "message", "hint"),
    [
        ("twelve", "'twelve' is not a job id", "123 or 123_4"),
        ("0", "'0' is not a job id", "123 or 123_4"),
        ("12.batch", "names a step", "use 12"),
        ("12_4.0", "names a step", "use 12_4"),
        ("12+0", "heterogeneous", "only single-node batch jobs"),
        ("12_[1-4]", "several array tasks", "12_1"),
        ("4294967294", "is not a job id", "123 or 123_4"),
        ("12_" + "9" * 5000, "is not a job id", "123 or 123_4"),
        ("\u0661\u0662", "is not a job id", "123 or 123_4"),
    ],
)
def test_job_ids_that_name_no_one_job(
    controller: Controller, shell: Shell, command: str, job: str, message: str, hint: str
) -> None:
    result = shell(command, job)
    assert result.exit_code == 28
    assert result.stderr.startswith("reclaim: ")
    assert message in result.stderr
    assert hint in result.stderr
    assert controller.asked == []


def test_an_unknown_job_is_the_controllers_answer(shell: Shell) -> None:
    result = shell("restore", "999")
    assert result.exit_code == 25
    assert result.stderr == ("reclaim: no such job is managed\n  hint: reclaim list shows yours\n")


@pytest.mark.parametrize(
    "args", [["show"], ["list", "x"], ["nonsense"], ["pause", "1", "--timeout", "5"]]
)
def test_wrong_usage_is_exit_code_2(shell: Shell, args: list[str]) -> None:
    result = shell(*args)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


def test_wrong_usage_is_an_object_for_programs(shell: Shell) -> None:
    for args in (["show"], ["pause", "1", "--timeout", "5"], ["nonsense"]):
        told = shell.json(*args, code=2)
        assert (told["error"], told["exit_code"]) == ("UsageError", 2)
        assert told["message"]


@pytest.mark.parametrize(
    "args",
    [
        ["hibernate", "12", "--reason", "\udcff"],
        ["restore", "12", "--accept-changed", "/home/\udcff"],
        ["checkpoints", "show", "\udcff/5.0.5"],
    ],
)
def test_what_is_no_utf_8_is_said(shell: Shell, controller: Controller, args: list[str]) -> None:
    """As Python has the bytes of a command line that are none."""
    told = shell.json(*args, code=28)
    assert "it is no UTF-8" in told["message"]
    assert controller.asked == []


def test_no_configuration_is_too_long_or_too_deep(shell: Shell) -> None:
    for text, why in (("#" * (5 << 20), "longer than 4 MiB"), ("a=" + "[" * 10**5, "too deep")):
        shell.config.write_text(text)
        result = shell("config", "check")
        assert result.exit_code == 11
        assert why in result.stderr


def test_no_controller(shell: Shell, controller: Controller) -> None:
    shell.config.write_text('[controller]\nhost = "127.0.0.1"\nport = 1\n')
    result = shell("list")
    assert result.exit_code == 35
    assert "reclaimd on 127.0.0.1:1 can't be reached" in result.stderr


def test_no_munge(shell: Shell) -> None:
    shell.munge.broken = True
    result = shell("list")
    assert result.exit_code == 36
    assert "hint: is munged running?" in result.stderr


def test_an_answer_of_somebody_else_is_not_believed(shell: Shell, controller: Controller) -> None:
    controller.answers["GET", "/v1/sessions"] = [[]]
    controller.signer.uid = 4242
    result = shell("list")
    assert 30 <= result.exit_code < 40
    assert "signed by uid 4242" in result.stderr


def test_no_configuration(tmp_path: Path) -> None:
    result = CliRunner().invoke(reclaim, ["--config", str(tmp_path / "none"), "list"], obj=App())
    assert result.exit_code == 11
    assert "there is no such file" in result.stderr
    assert "reclaim config sample" in result.stderr


def test_a_configuration_with_mistakes_names_all_of_them(shell: Shell) -> None:
    shell.config.write_text("a = 1\nb = 2\n")
    result = shell("list")
    assert result.exit_code == 11
    assert result.stderr.count("reclaim: ") == 2


def explode() -> StandInMunge:
    raise RuntimeError("boom")


def test_our_own_mistakes_are_told_without_a_traceback(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--config", str(shell.config), "list"]
    result = CliRunner().invoke(reclaim, arguments, obj=App(codec=explode))
    assert result.exit_code == 70
    assert result.stderr.startswith("reclaim: unexpected RuntimeError: boom\n")
    assert "RECLAIM_DEBUG=1" in result.stderr
    assert "Traceback" not in result.output
    monkeypatch.setenv("RECLAIM_DEBUG", "1")
    result = CliRunner().invoke(reclaim, arguments, obj=App(codec=explode))
    assert isinstance(result.exception, RuntimeError)


@pytest.mark.parametrize(("typed", "meant"), [("lst", "'list'"), ("pasue", "'pause'")])
def test_a_mistyped_command(shell: Shell, typed: str, meant: str) -> None:
    result = shell(typed)
    assert result.exit_code == 2
    assert f"Did you mean {meant}?" in result.stderr
    assert "Did you mean" not in shell("xyzzy").stderr
