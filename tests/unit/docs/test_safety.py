"""Every promise of docs/safety.md and every case of docs/cases.md names the tests that guard it,
and these tests exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROWS = {
    cells[1].strip(): cells[4].strip()
    for page in ("safety", "cases")
    for line in (ROOT / f"docs/{page}.md").read_text().splitlines()
    if re.match(r"\| [SC]\d+ \|", line) and len(cells := line.split("|")) == 6
}
SOURCES = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
DEFINED = set(re.findall(r"^(?:async )?def (test_\w+)", "\n".join(SOURCES.values()), re.M))


def test_every_promise_has_its_row() -> None:
    promises = [name for name in ROWS if name.startswith("S")]
    assert promises == [f"S{number}" for number in range(1, 11)]


def test_every_case_that_a_test_names_has_its_row() -> None:
    named = set(re.findall(r"\bC\d{2}\b", "\n".join(SOURCES.values())))
    assert named - ROWS.keys() == set()
    assert len(ROWS) > 50, "a row that is cut wrong is none"


@pytest.mark.parametrize("number", list(ROWS))
def test_its_tests_exist(number: str) -> None:
    named = [name for name in re.findall(r"`([^`]+)`", ROWS[number]) if " " not in name]
    assert named, f"{number} names no test"
    for name in named:
        if name.startswith("test_"):
            assert name in DEFINED, f"{number}: no test is called {name}"
        else:
            assert (ROOT / "tests" / name).exists(), f"{number}: tests/{name} is not there"
