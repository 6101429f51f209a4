"""Every promise of docs/safety.md names the tests that guard it, and these tests exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/safety.md").read_text()
ROWS = {
    cells[1].strip(): cells[4].strip()
    for line in PAGE.splitlines()
    if re.match(r"\| S\d+ \|", line) and len(cells := line.split("|")) == 6
}
SOURCES = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
DEFINED = set(re.findall(r"^(?:async )?def (test_\w+)", "\n".join(SOURCES.values()), re.M))


def test_every_promise_has_its_row() -> None:
    assert list(ROWS) == [f"S{number}" for number in range(1, 11)]


@pytest.mark.parametrize("number", list(ROWS))
def test_its_tests_exist(number: str) -> None:
    named = [name for name in re.findall(r"`([^`]+)`", ROWS[number]) if " " not in name]
    assert named, f"{number} names no test"
    for name in named:
        if name.startswith("test_"):
            assert name in DEFINED, f"{number}: no test is called {name}"
        else:
            assert (ROOT / "tests" / name).exists(), f"{number}: tests/{name} is not there"
