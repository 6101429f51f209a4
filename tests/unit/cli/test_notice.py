from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from .conftest import Shell


@pytest.fixture
def hooks(shell: Shell, tmp_path: Path) -> Path:
    folder = tmp_path / "hooks"
    folder.mkdir()
    shell.config.write_text(
        shell.config.read_text() + f'[notice]\nhooks = "{folder}"\ntexts = "{tmp_path}/texts"\n'
    )
    return folder


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="controller.user is root in these tests")


@needs_root
def test_every_delivery_is_shown(shell: Shell, hooks: Path, tmp_path: Path) -> None:
    put(hooks, "good", f"cat > {tmp_path}/seen")
    result = shell("notice", "test", "--to", "bob", "--channel", "hook")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1].split() == ["hook", "good", "delivered"]
    said = json.loads((tmp_path / "seen").read_text())
    assert (said["user"], said["job"], said["kind"]) == ("bob", "TEST", "warning")
    assert "only a test" in said["text"]
    put(hooks, "zbad", "echo no; exit 4")
    found = shell.json("notice", "test", "--channel", "hook", "--kind", "brake", code=40)
    assert [(d["to"], d["ok"], d["error"]) for d in found["deliveries"]] == [
        ("good", True, ""), ("zbad", False, "exit status 4: no"),
    ]  # fmt: skip
    assert json.loads((tmp_path / "seen").read_text())["kind"] == "brake"


def test_without_a_channel_nothing_is_tried(shell: Shell, hooks: Path) -> None:
    result = shell("notice", "test")
    assert result.exit_code == 40
    assert "names no mail, webhook or hook" in result.stderr


def test_only_on_the_controllers_host(shell: Shell) -> None:
    text = shell.config.read_text().replace('user = "root"', 'user = "no-such-account"')
    shell.config.write_text(text)
    result = shell("notice", "test", "--channel", "mail")
    assert result.exit_code == 40
    assert "there is no account no-such-account here" in result.stderr


@needs_root
def test_a_mistake_in_a_text_is_said_by_config_check_and_test(
    shell: Shell, hooks: Path, tmp_path: Path
) -> None:
    put(hooks, "good", "cat > /dev/null")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/warning.txt").write_text("Subject: $jbo\n\nx\n")
    wrong = f"{tmp_path}/texts/warning.txt: unknown name $jbo; did you mean $job?"
    for words in (("config", "check"), ("notice", "test", "--channel", "hook")):
        result = shell(*words)
        assert result.exit_code == 0
        assert f"warning: {wrong}; the built-in text is used" in result.stderr
    assert shell.json("config", "check")["warnings"] == [f"{wrong}; the built-in text is used"]
