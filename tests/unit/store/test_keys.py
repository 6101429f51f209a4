"""The keys' file: root's alone, several at once, never shown, read again when it changes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.errors import KeyUnavailable
from slurm_reclaim.model.storekey import StoreKey, parse, sealing

NOW = 1_800_000_000.0
OLD, NEW = StoreKey(NOW - 100, b"a" * 32), StoreKey(NOW + 100, b"b" * 32)


def test_a_key_file_reads_as_it_was_written() -> None:
    text = f"# said by an admin\n\n{OLD.line()}\n{NEW.line()}\n"
    assert parse(text) == (OLD, NEW)
    assert OLD.id != NEW.id


def test_a_key_is_never_shown() -> None:
    assert OLD.secret.hex() not in repr(OLD)
    assert "aaaa" not in repr(OLD)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no key"),
        ("# nothing\n", "no key"),
        ("key x", "not written"),
        (OLD.line().replace("key ", "old "), "not written"),
        (OLD.line()[:-2], "31 bytes"),
        (OLD.line()[:-2] + "zz", "can't be read"),
        (OLD.line()[:-2] + "00", "not that of key"),
        (f"{OLD.line()}\n{OLD.line()}", "twice"),
        (OLD.line().replace("T", " ", 1), "not written"),
    ],
)
def test_mistakes_are_named_and_keys_are_not(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        parse(text)
    assert "6161" not in str(caught.value)


def test_the_newest_key_whose_time_has_come_seals() -> None:
    assert sealing((OLD, NEW), NOW) is OLD
    assert sealing((NEW, OLD), NOW + 100) is NEW
    # A clock that was set back must not stop the saving.
    assert sealing((NEW, OLD), 0.0) is OLD


def test_a_new_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = KeyFile(tmp_path / "store.keys")
        file.add(1000)
    finally:
        os.umask(before)
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_the_first_key_seals_at_once_and_the_next_one_later(keys: KeyFile) -> None:
    first = keys.sealing()
    second = keys.add(1000)
    assert keys.sealing() == first
    assert second.since > time.time() + 900
    assert keys.ids() == (first.id, second.id)
    assert keys.find(second.id) == second
    third = keys.add(0)
    assert (keys.sealing(), keys.ids()[0]) == (third, third.id)


def test_a_changed_file_is_read_again(keys: KeyFile) -> None:
    known = KeyFile(keys.path)
    known.sealing()
    added = keys.add(0)
    assert known.find(added.id) == added


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_no_key(keys: KeyFile, mode: int) -> None:
    keys.path.chmod(mode)
    with pytest.raises(KeyUnavailable, match="only root") as caught:
        keys.sealing()
    assert "rotate" in caught.value.hint
    assert keys.ids() == ()


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(KeyUnavailable) as caught:
        KeyFile(tmp_path / "none").sealing()
    assert "reclaim key new" in caught.value.hint


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path, 0o600)
    with pytest.raises(KeyUnavailable, match="no regular file"):
        KeyFile(path).sealing()
    path.unlink()
    path.write_bytes(b"\xff\xfe")
    path.chmod(0o600)
    with pytest.raises(KeyUnavailable, match="no text"):
        KeyFile(path).sealing()


def test_a_broken_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "store.keys"
    path.write_text("key lost\n")
    path.chmod(0o600)
    with pytest.raises(KeyUnavailable):
        KeyFile(path).add(0)
    assert path.read_text() == "key lost\n"
