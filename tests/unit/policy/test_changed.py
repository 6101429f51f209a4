"""Which files may have changed while a session slept, and what is said of the others."""

from __future__ import annotations

import errno
import stat

import pytest

from slurm_reclaim.model.checkpoint import File
from slurm_reclaim.policy.changed import Seen, judge

REG = stat.S_IFREG | 0o644
HARMLESS = ("*.log", "history.sqlite", "/site/cache/*")


def file(uses: str = "rw", path: str = "/h/data", **more: object) -> File:
    return File(**{"path": path, "size": 100, "mode": REG, "uses": uses, "mtime": 5, **more})  # type: ignore[arg-type]


def now(**more: object) -> Seen:
    return Seen(**{"size": 100, "mode": REG, "mtime": 5, **more})  # type: ignore[arg-type]


def test_nothing_changed() -> None:
    files = [file(), file("mrx", build_id="ab"), file("d", mode=stat.S_IFDIR | 0o700)]
    seen = [now(), now(build_id="ab"), now(mode=stat.S_IFDIR | 0o755, size=4096, mtime=9)]
    verdict = judge(files, seen, HARMLESS, ())
    assert (verdict.refused, verdict.noted, verdict.differ) == ((), (), ())


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (file(), Seen(error=errno.ENOENT), "/h/data: gone (100 bytes then)"),
        (file("d"), Seen(error=errno.ENOTDIR), "gone (a directory then)"),
        (file(), Seen(error=errno.EACCES), "can't be looked at: Permission denied"),
        (file(), now(mode=stat.S_IFIFO | 0o644), "a file then, a special file now"),
        (file("a"), now(may=False, mode=stat.S_IFREG | 0o400), "written now (mode 0644 then, 0400"),
        (file("r"), now(may=False), "may not have it read now"),
        (file("mrx", build_id="a" * 40), now(build_id="b" * 40), "build-id aaaaaaaaaaaaaaaa then"),
        (file("mrx", build_id="a" * 40), now(), "build-id aaaaaaaaaaaaaaaa then, none now"),
        (file("mrx", digest="c"), now(digest="d"), "with other content, 100 bytes as before"),
        (file("mrx"), now(size=90), "another program or library: 100 bytes then, 90 now"),
        (file("mrw"), now(size=90), "mapped, and shorter: 100 bytes then, 90 now"),
    ],
)
def test_what_nobodys_word_makes_right(before: File, after: Seen, words: str) -> None:
    verdict = judge([before], [after], HARMLESS, [before.path])
    assert words in verdict.refused[0]
    assert verdict.remedied == verdict.differ == ()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (file(), now(size=120), "/h/data: 100 bytes then, 120 now"),
        (file("r"), now(mode=stat.S_IFREG | 0o600), "mode 0644 then, 0600 now"),
        (file("ar"), now(size=120), "100 bytes then, 120 now"),
        (file("mrw"), now(size=120), "100 bytes then, 120 now"),
    ],
)
def test_its_owner_may_accept(before: File, after: Seen, words: str) -> None:
    verdict = judge([before], [after], HARMLESS, ())
    assert words in verdict.refused[0]
    assert verdict.remedied == ("/h/data",)
    verdict = judge([before], [after], HARMLESS, ("/h/data",))
    assert verdict.refused == ()
    assert verdict.differ == ("/h/data",)
    assert words in verdict.noted[0]


@pytest.mark.parametrize(
    ("uses", "path"),
    [("a", "/h/x.txt"), ("rw", "/h/x.log"), ("rw", "/h/history.sqlite"), ("r", "/site/cache/a")],
)
def test_harmless_ones_are_opened_as_they_are(uses: str, path: str) -> None:
    verdict = judge([file(uses, path)], [now(size=1)], HARMLESS, ())
    assert verdict.refused == ()
    assert verdict.differ == (path,)


def test_a_pattern_without_a_slash_is_of_names_not_of_folders() -> None:
    verdict = judge([file(path="/h/a.log/data")], [now(size=1)], HARMLESS, ())
    assert verdict.refused


def test_a_harmless_name_does_not_cover_code() -> None:
    verdict = judge([file("mrx", "/h/x.log", build_id="a")], [now(build_id="b")], HARMLESS, ())
    assert verdict.refused


def test_a_file_written_to_with_the_same_size_is_only_noted() -> None:
    verdict = judge([file("r"), file("mrx", digest="c")], [now(mtime=9), now(mtime=9, digest="c")],
                    HARMLESS, ())  # fmt: skip
    assert verdict.noted == ("/h/data: written to meanwhile, 100 bytes as before",)
    assert verdict.refused == verdict.differ == ()


def test_an_unknown_size_is_not_compared() -> None:
    verdict = judge([file("a", size=-1)], [now(size=7)], HARMLESS, ())
    assert verdict.refused == ()
