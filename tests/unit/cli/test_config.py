from __future__ import annotations

from pathlib import Path

from .conftest import Shell


def test_check_is_quiet_about_a_good_file_and_names_mistakes(shell: Shell) -> None:
    result = shell("config", "check")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"ok: {shell.config} (")
    shell.config.write_text('[agent]\nintervall = "1s"\n')
    result = shell("config", "check")
    assert result.exit_code == 11
    assert "agent.intervall: unknown setting; did you mean agent.interval?" in result.stderr
    assert shell.json("config", "check", code=11)["error"] == "ConfigError"


def test_show_tells_value_and_origin(shell: Shell) -> None:
    out = shell("config", "show").stdout
    assert any(
        line.split() == ["controller.user", '"root"', f"{shell.config}:4"]
        for line in out.splitlines()
    )
    settings = {s["key"]: s for s in shell.json("config", "show")["settings"]}
    assert settings["agent.interval"] == {
        "key": "agent.interval", "value": 10, "text": '"10s"', "origin": "default",
    }  # fmt: skip


def test_the_sample_is_a_good_file(shell: Shell, tmp_path: Path) -> None:
    shell.config.write_text(shell("config", "sample").stdout)
    assert shell("config", "check").exit_code == 0
