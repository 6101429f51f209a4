from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from slurm_reclaim.adapters.notify import texts
from slurm_reclaim.adapters.notify.builtin import TEXTS
from slurm_reclaim.adapters.notify.notices import Notices
from slurm_reclaim.model.notice import NoticeKind
from slurm_reclaim.model.printable import line, lines, width, wrap

from .conftest import Make, notice

NOW = 1_800_000_000.0
HOSTILE = (
    "x\x1b]0;pwn\x07\x1b[2J\r\nBcc: a\u202eb\u200b\x9b5n\udcff\x00 $job ${user} $$ %s" + "日" * 300
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "notices"
    made.mkdir()
    return made


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch):
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_every_kind_has_a_text_that_names_only_what_is_known() -> None:
    assert set(TEXTS) == set(NoticeKind)
    for text in TEXTS.values():
        assert texts.parse(text)
        assert text.isascii(), "shown on any terminal"


def test_the_warning_says_all_there_is_to_say(make: Make) -> None:
    shown = Notices(lambda: make()).text(notice())
    for word in (
        "job 12", "notebook", "n1", "45 minutes", "reclaim keep 12", "reclaim restore 12",
        "type in a terminal", "run a cell", "Nothing is lost",
    ):  # fmt: skip
        assert word in shown


@pytest.mark.parametrize("kind", list(NoticeKind))
@pytest.mark.parametrize("name", ["notebook", HOSTILE, "y" * 300, "", "é" * 40 + " " * 200])
def test_a_terminal_of_80_columns_shows_it(make: Make, kind: NoticeKind, name: str) -> None:
    what = notice(kind=kind, job_name=name, reason=name, node=name, user=name, job=name[:60])
    shown = Notices(lambda: make()).text(what)
    rows = shown.split("\n")
    assert rows[0] == rows[-1] == rows[-2] == ""
    assert 3 < len(rows) <= texts.MOST_LINES + 3
    assert max(map(width, rows)) <= texts.COLUMNS
    assert all(row.isprintable() for row in rows)
    shown.encode()


def test_times_are_the_controllers(zone) -> None:
    text = texts.parse("Subject: $deadline\n$minutes $left $idle $vram\n")
    filled = texts.fill(text, notice(deadline=NOW + 3900, idle=100000.0), NOW)
    assert filled.subject == "Fri 15 Jan 10:05 CET"
    assert filled.body == "65 1 hour 5 minutes 1 day 3 hours 38.0 GiB\n"


@pytest.mark.parametrize(
    ("deadline", "shown"),
    [(0.0, "- 0 less than a minute"), (NOW - 500, "0 less than a minute"), (1e300, "-"),
     (NOW + 89, "1 1 minute"), (float("inf"), "-")],
)  # fmt: skip
def test_odd_deadlines(deadline: float, shown: str) -> None:
    text = texts.parse("Subject: x\n$deadline $minutes $left\n")
    assert shown in texts.fill(text, notice(deadline=deadline, vram=0), NOW).body


def test_a_sites_own_text_is_used_and_read_again(make: Make, folder: Path) -> None:
    notices = Notices(lambda: make())
    (folder / "warning.txt").write_text("Subject: Hé $user\r\n\r\nCosts: $$5.\n\n  $job_name\n")
    shown = notices.text(notice())
    assert "Hé alice" in shown
    assert "Costs: $5.\n\n  notebook\n" in shown
    (folder / "warning.txt").write_text("Subject: Other\n\nwords\n")
    assert "Other" in notices.text(notice())
    assert texts.mistakes(str(folder)) == []


def test_a_long_text_does_not_flood_a_terminal(make: Make, folder: Path) -> None:
    (folder / "warning.txt").write_text("Subject: a\n\n" + "b\n" * 1000)
    rows = Notices(lambda: make()).text(notice()).strip().split("\n")
    assert (len(rows), rows[-1]) == (texts.MOST_LINES, "...")


def fifo(path: Path) -> None:
    os.mkfifo(path)


BAD = [
    ("Subject: a\n\n$jobname\n", "unknown name $jobname; did you mean $job_name?"),
    ("Subject: $xyz\n\nb\n", "unknown name $xyz; known: job, job_name"),
    ("Subject: a\n\ncosts 5 $ or so\n", "a $ that begins no name; write $$ for a dollar sign"),
    ("Subject: a\n\n${job\n", "a $ that begins no name"),
    ("Hello\n\nb\n", 'the first line must be "Subject:" and a subject'),
    ("Subject:  \n\nb\n", 'the first line must be "Subject:" and a subject'),
    ("Subject: a\n \n\n", "there is no text below the subject"),
    ("", "the first line must be"),
    ("Subject: a\n\nb\x1b[2J\n", "it has control characters"),
    (b"Subject: a\n\n\xff\n", "it is no UTF-8"),
    ("Subject: a\n\n" + "b" * 70_000, "it is longer than 64 KiB"),
    (fifo, "it is no regular file"),
    (Path.mkdir, "can't be read: Is a directory"),
    (lambda path: path.symlink_to(path), "can't be read: Too many levels of symbolic links"),
    (lambda path: path.symlink_to("/dev/zero"), "it is no regular file"),
]


@pytest.mark.parametrize(("content", "problem"), BAD)
def test_a_bad_text_is_named_and_the_built_in_one_used(
    make: Make, folder: Path, caplog: pytest.LogCaptureFixture, content, problem: str
) -> None:
    path = folder / "warning.txt"
    if isinstance(content, str):
        path.write_text(content)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content(path)
    (complaint,) = texts.mistakes(str(folder))
    assert complaint.startswith(f"{path}: {problem}")
    assert complaint.endswith("; the built-in text is used")
    notices = Notices(lambda: make())
    with caplog.at_level(logging.WARNING):
        assert notices.text(notice()) == notices.text(notice())
    assert "reclaim keep 12" in notices.text(notice())
    assert [record.getMessage() for record in caplog.records] == [complaint], "said once"


def test_a_file_that_is_never_read_is_named(folder: Path) -> None:
    (folder / "warnings.txt").write_text("Subject: a\n\nb\n")
    (folder / "README").write_text("anything\n")
    assert texts.mistakes(str(folder)) == [
        f"{folder}/warnings.txt: there is no such notice; did you mean warning.txt?"
    ]


def test_no_directory_is_no_mistake(tmp_path: Path) -> None:
    assert texts.mistakes(str(tmp_path / "none")) == []


def test_values_are_not_templates() -> None:
    text = texts.parse("Subject: $reason\n\n$job_name\n")
    filled = texts.fill(text, notice(job_name="$user", reason="${user} $nothing $"), NOW)
    assert (filled.subject, filled.body) == ("${user} $nothing $", "$user\n")


def test_printable() -> None:
    assert line(" a\t\r\n b\x1b\u2028c ") == "a b? c"
    assert line("x" * 20, 10) == "xxxxxxx..."
    assert lines("a\tb\r\nc\x07\x85\n") == "a       b\nc??\n"
    assert wrap("aa bb ccccccccc", 5) == ["aa bb", "ccccc", "cccc"]
    assert wrap("日本語", 4) == ["日本", "語"]
    assert wrap("", 4) == [""]
