from __future__ import annotations

import io
import json
import re
import sys

import pytest

from slurm_reclaim.cli import phrases
from slurm_reclaim.cli.meter import Meter
from slurm_reclaim.cli.output import Output, columns

from .conftest import session


def test_columns_line_up_and_have_no_blanks_at_the_end() -> None:
    assert columns([("A", "B"), ("long", "x"), ("s", "")]) == ["A     B", "long  x", "s"]


def test_on_a_terminal_ids_stay_whole_and_the_sentence_wraps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    Output().table(("JOBID", "REASON"), [("123456789012_345", "a b c d e f " * 6)], empty="")
    out = capsys.readouterr().out
    assert "123456789012_345" in out
    assert len(out.splitlines()) > 2


@pytest.mark.parametrize("width", [1, 20, 39, 60])
def test_no_id_is_cut_to_another_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [(f"{job}", "alice", "\u65e5\u672c", "HIBERNATED", "a b c d") for job in (36, 37, 3612)]
    Output().table(("JOBID", "USER", "NAME", "STATE", "REASON"), rows, empty="")
    words = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).split()
    for row in rows:
        assert set(row[:4]) <= set(words)


def test_names_from_elsewhere_are_not_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    Output().table(("NAME", "X"), [("[red]job[/red]", "")], empty="")
    assert "[red]job[/red]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 28, "1.2 GiB"), (200 << 20, "200 MiB"),
     (3 << 40, "3.0 TiB")],
)  # fmt: skip
def test_sizes(count: int, text: str) -> None:
    assert phrases.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.4, "59s"),
        (60, "1m"),
        (5400, "1h30m"),
        (3601, "1h"),
        (90061, "1d1h"),
        (-5, "0s"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert phrases.span(seconds) == text


@pytest.mark.parametrize("terminal", [True, False])
def test_names_can_not_drive_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    Output().table(("NAME", "X"), [("\x1b]0;owned\x07", "\x9b2J")], empty="")
    out = capsys.readouterr().out
    assert "owned" in out
    assert "\x1b]" not in out
    assert "\x9b" not in out


def test_a_row_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("NAME", "X"), [("two\nlines", "x"), ("one", "y")], empty="")
    assert capsys.readouterr().out.splitlines() == ["NAME       X", "two lines  x", "one        y"]


TURNED = "\u202egnp.exe"  # a direction mark
NAME = "caf\u00e9 \x9b2J\u202e\U0001f600"


def test_names_can_not_turn_a_line_round(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("NAME", "X"), [(TURNED, "x\ty")], empty="")
    Output().say(TURNED)
    written = capsys.readouterr()
    assert "gnp.exe" in written.out
    assert "\u202e" not in written.out + written.err
    assert "\t" not in written.out


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_programs_lose_nothing_of_a_name(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    Output(json=True).value({"name": NAME})
    sys.stdout.flush()
    written = raw.getvalue().decode(encoding)
    assert json.loads(written) == {"name": NAME}
    assert "\x9b" not in written
    assert "\u202e" not in written


class Terminal(io.StringIO):
    encoding = "ascii"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def test_progress_can_not_drive_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason may name a file of the owner's, and an operator may be watching."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Meter(Output()) as meter:
        meter.show(session(reason="/home/a/\x1b]0;owned\x07\u202e\u00e9"))
    drawn = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert "owned" in drawn
    assert drawn.isascii()
    assert not {"\x1b", "\x07"} & set(drawn)
