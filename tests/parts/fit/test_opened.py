"""What real processes have open and mapped, and which of it can't be saved."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_reclaim.adapters.proc import file_blockers, filesystems, opened, tree

Look = Callable[[str], dict[str, opened.Opened]]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Callable[[str], list[opened.Opened]]]:
    """Start a Python process that does `code` in an empty directory; all that it has open."""
    started = []

    def start(code: str) -> list[opened.Opened]:
        process = subprocess.Popen(
            [sys.executable, "-c", f"{code}\nprint('ready', flush=True)\ninput()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        seen = tree.read(process.pid)
        assert seen is not None
        return opened.files([seen])

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()


def names(
    found: list[opened.Opened], saved: bytes = b"/nowhere", mounts: frozenset[int] = frozenset()
) -> dict[str, str]:
    blockers = file_blockers.find(
        found, ghost_limit=1 << 20, saved=[saved], mounted=filesystems.mounted(), mounts=mounts
    )
    return {blocker.name: blocker.what for blocker in blockers}


def of(found: list[opened.Opened], name: str) -> opened.Opened:
    return next(each for each in found if each.path.endswith(os.fsencode(name)))


def test_uses_and_locks(session: Callable[[str], list[opened.Opened]]) -> None:
    found = session(
        "import fcntl, mmap, os\n"
        "a = open('append', 'a'); b = open('both', 'w+'); c = os.open('both', os.O_RDONLY)\n"
        "os.truncate('both', 4096)\n"
        "m = mmap.mmap(b.fileno(), 4096); d = os.open('.', os.O_PATH)\n"
        "fcntl.flock(a, fcntl.LOCK_EX); fcntl.lockf(b, fcntl.LOCK_EX, 10, 5)"
    )
    assert of(found, "/append").uses == {"a"}
    assert of(found, "/append").locks == {"flock write 0 EOF"}
    assert of(found, "/both").uses == {"r", "w", "m"}
    assert of(found, "/both").locks == {"range write 5 14"}
    assert {"m", "x", "r"} <= of(found, os.path.realpath(sys.executable)).uses
    assert of(found, os.path.realpath(sys.executable)).mapped_only
    assert not of(found, "/both").mapped_only


def test_names_with_line_ends_and_without_utf8(
    session: Callable[[str], list[opened.Opened]],
) -> None:
    found = session(
        "import ctypes, os\n"
        "f = open(b'a\\nb\\xff', 'wb+'); f.truncate(4096); c = ctypes.CDLL(None)\n"
        "c.mmap.restype = ctypes.c_void_p\n"
        "assert c.mmap(None, ctypes.c_size_t(4096), 3, 1, f.fileno(), ctypes.c_long(0)) > 0\n"
        "f.close()"
    )
    each = next(each for each in found if each.path.endswith(b"/a\nb\xff"))
    assert each.uses == {"r", "w", "m"}
    assert each.mapped_only
    assert not each.deleted


def test_a_file_that_was_deleted_by_one_of_its_names(
    session: Callable[[str], list[opened.Opened]], tmp_path: Path
) -> None:
    code = "import os; f = open('one', 'w'); os.link('one', 'two'); os.unlink('one')"
    found = session(code)
    assert "one, deleted, but" in names(found)["deleted-link"]
    assert "deleted-link" in names(found, os.fsencode(tmp_path)), "CRIU refuses these anywhere"


def test_a_deleted_mapping_is_a_deleted_file(session: Callable[[str], list[opened.Opened]]) -> None:
    found = session(
        "import mmap, os; f = open('big', 'wb+'); f.truncate(2 << 20)\n"
        "m = mmap.mmap(f.fileno(), 0); f.close(); os.unlink('big')"
    )
    assert "with 2 MiB" in names(found)["deleted-file"]


def test_a_file_that_nfs_renamed_when_it_was_deleted(
    session: Callable[[str], list[opened.Opened]],
) -> None:
    found = session("f = open('.nfs000000000000abcd00000001', 'w')")
    assert "NFS" in names(found)["deleted-file"]


def test_a_device_that_is_mapped_or_open(session: Callable[[str], list[opened.Opened]]) -> None:
    found = session("f = open('/dev/null'); g = open('/dev/zero')")
    assert names(found) == {}
    if not os.path.exists("/dev/loop-control"):
        pytest.skip("no device here that is not for everybody")
    assert "loop-control" in names(session("f = open('/dev/loop-control')"))["device"]


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no /dev/fuse here")
def test_a_fuse_daemon(session: Callable[[str], list[opened.Opened]]) -> None:
    found = session("import os; f = os.open('/dev/fuse', os.O_RDWR)")
    assert "FUSE" in names(found)["fuse-daemon"]


def test_what_lies_in_memory_and_is_written_to(
    session: Callable[[str], list[opened.Opened]],
) -> None:
    if filesystems.mounted().get(b"/dev/shm") != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here")
    path = f"/dev/shm/slurm-reclaim-test-{os.getpid()}"
    try:
        writes, reads = session(f"f = open('{path}', 'w')"), session(f"f = open('{path}')")
        assert path in names(writes)["file-in-memory"]
        assert names(writes, b"/dev/shm") == {}
        assert names(reads) == {}
    finally:
        os.unlink(path)


def test_a_file_that_was_opened_outside(
    session: Callable[[str], list[opened.Opened]], tmp_path: Path
) -> None:
    """As what slurmstepd opened before the session had mounts of its own."""
    (tmp_path / "out").touch()
    memfds = "m = os.memfd_create('m'); h = os.memfd_create('h', 4)"  # 4: in huge pages
    found = session(f"import os; kept = open('out', 'a'); {memfds}")
    assert "outside-mount" not in names(found, mounts=filesystems.mount_ids(os.getpid()))
    elsewhere = subprocess.run(
        ["unshare", "--mount", "cat", "/proc/self/mountinfo"], capture_output=True, check=True
    )
    mounts = frozenset(int(line.split()[0]) for line in elsewhere.stdout.splitlines())
    assert "out open, which it got from outside" in names(found, mounts=mounts)["outside-mount"]
