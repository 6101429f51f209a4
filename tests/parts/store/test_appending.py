"""Files that grow at their end, past the page cache where there is a way past it."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_reclaim.adapters.store import appending
from slurm_reclaim.adapters.store.appending import Appender

MIB = 1 << 20
MEMORY = Path("/dev/shm")


def written(path: Path, *pieces: bytes) -> bytes:
    file = Appender(path)
    for piece in pieces:
        file.append(piece)
    size = file.size
    file.finish()
    assert size == sum(map(len, pieces)) == path.stat().st_size
    return path.read_bytes()


def takes_direct(folder: Path) -> bool:
    probe = folder / "probe"
    fd = os.open(probe, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
    except OSError:
        return False
    finally:
        os.close(fd)
        probe.unlink()
    return True


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """In bytes; beyond it a write fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 1, 4096, 4 * MIB - 1, 4 * MIB, 13 * MIB + 5])
def test_whatever_its_length(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    assert written(tmp_path / "a", data) == data


def test_pieces_of_any_length_and_what_becomes_of_them_later(tmp_path: Path) -> None:
    piece, wanted = bytearray(), bytearray()
    file = Appender(tmp_path / "a")
    for length in range(1, 3 * MIB, 300_007):
        piece[:] = os.urandom(length)
        file.append(memoryview(piece))
        wanted += piece
    piece[:] = bytes(len(piece))
    file.finish()
    assert (tmp_path / "a").read_bytes() == wanted


def test_it_is_written_past_the_page_cache(tmp_path: Path) -> None:
    if not takes_direct(tmp_path):
        pytest.skip("this file system knows no O_DIRECT")
    file = Appender(tmp_path / "a")
    file.append(os.urandom(16 * MIB))
    file.finish()
    fd = os.open(tmp_path / "a", os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):  # it would have to be fetched
            os.preadv(fd, [bytearray(4096)], 4 * MIB, os.RWF_NOWAIT)
    finally:
        os.close(fd)


def test_where_there_is_no_way_past_it() -> None:
    """As on tmpfs before Linux 6.6."""
    path = MEMORY / f"reclaim-appending-{os.getpid()}"
    data = os.urandom(9 * MIB + 1)
    try:
        assert written(path, data) == data
    finally:
        path.unlink()


def test_a_file_system_that_is_more_particular(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wants more than a page; here chunks are smaller than that, which is refused as well."""
    monkeypatch.setattr(appending, "_CHUNK", 1000)
    data = os.urandom(10_500)
    assert written(tmp_path / "a", data) == data


@pytest.mark.parametrize(
    ("largest", "pieces"), [(2, 4), (6, 8), (7, 32), (4, 5)], ids=["first", "last", "many", "rest"]
)
def test_a_full_disk_is_told(tmp_path: Path, largest: int, pieces: int) -> None:
    """Also where it is full for nothing but a chunk that a thread wrote."""
    with largest_file(largest * MIB), pytest.raises(OSError, match="too large") as told:
        written(tmp_path / "a", *[os.urandom(MIB)] * pieces)
    assert told.value.errno == errno.EFBIG


def test_what_exists_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"of somebody")
    with pytest.raises(FileExistsError):
        Appender(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"of somebody"


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        written(tmp_path / "a", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
