"""What is in the store and is not what root puts there is neither followed, read nor waited for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_reclaim.adapters.store.private import read_private
from slurm_reclaim.errors import IntegrityError, StoreUnavailable


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good"
    path.write_bytes(b"mine")
    path.chmod(0o600)
    return path


def test_a_plain_file_of_ours(good: Path) -> None:
    assert read_private(good, 4) == b"mine"


def symlink(path: Path, good: Path) -> None:
    path.symlink_to(good)


def hard_link(path: Path, good: Path) -> None:
    os.link(good, path)


def fifo(path: Path, good: Path) -> None:
    os.mkfifo(path, 0o600)


def a_socket(path: Path, good: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))  # the name of a socket must be short
    path.chmod(0o600)


def folder(path: Path, good: Path) -> None:
    path.mkdir(mode=0o700)


def device(path: Path, good: Path) -> None:
    path.symlink_to("/dev/zero")


def group_writes(path: Path, good: Path) -> None:
    path.write_bytes(b"x")
    path.chmod(0o620)


def huge(path: Path, good: Path) -> None:
    path.touch(0o600)
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    "make", [symlink, hard_link, fifo, a_socket, folder, device, group_writes, huge]
)
def test_all_else_is_refused(
    good: Path, make: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "it"
    make(path, good)
    with pytest.raises(IntegrityError, match="it "):
        read_private(path, 1 << 20)


def test_another_ones_file(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: good.stat().st_uid + 1)
    with pytest.raises(IntegrityError, match="belongs to uid"):
        read_private(good, 100)


def test_what_is_not_there_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_private(tmp_path / "none", 10)
    with pytest.raises(StoreUnavailable):
        read_private(tmp_path / ("x" * 300), 10)
