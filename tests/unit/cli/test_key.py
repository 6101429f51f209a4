"""`reclaim key`: makes and lists keys, shows none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import Shell

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may")


@pytest.fixture
def file(shell: Shell, tmp_path: Path) -> Path:
    path = tmp_path / "store.keys"
    shell.config.write_text(f'{shell.config.read_text()}\n[store]\nkeys = "{path}"\n')
    return path


def test_the_first_key_and_the_next(shell: Shell, file: Path) -> None:
    first = shell.json("key", "new")
    assert file.stat().st_mode & 0o777 == 0o600
    second = shell.json("key", "new", "--after", "2h")
    assert second["since"] - first["since"] > 7000
    listed = shell.json("key", "list")
    assert [(k["key"], k["seals"]) for k in listed["keys"]] == [
        (first["key"], True),
        (second["key"], False),
    ]
    shown = shell("key", "list").output
    assert "later" in shown
    for line in file.read_text().splitlines():
        if line.startswith("key"):
            assert line.split()[3] not in shown


def test_mistakes(shell: Shell, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell("key", "list").exit_code == 33
    assert shell("key", "new", "--after", "soon").exit_code == 2
    assert not file.exists()
    monkeypatch.setattr(os, "geteuid", lambda: 2001)
    for verb in ("new", "list"):
        done = shell("key", verb)
        assert (done.exit_code, "only root" in done.output) == (26, True)
