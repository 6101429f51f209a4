"""The look at files as their owner: content, access, locks, and what can't be found out."""

from __future__ import annotations

import fcntl
import json
import marshal
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_reclaim.adapters.criu import files, look
from slurm_reclaim.model.checkpoint import Credentials

LIBRARY = next(
    (p for p in ("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6") if os.path.exists(p)), ""
)


def ask(*question: list[Any]) -> list[dict[str, object]]:
    """As the agent does: the program as text."""
    words = [sys.executable, "-I", "-S", "-c", Path(look.__file__).read_text()]
    asked = marshal.dumps([(os.fsencode(path), *more) for path, *more in question])
    done = subprocess.run(words, input=asked, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(not LIBRARY, reason="no glibc where it is looked for")
def test_a_build_id_is_the_one_that_binutils_read(tmp_path: Path) -> None:
    (found,) = ask([LIBRARY, "r", True, []])
    assert len(str(found["build_id"])) == 40
    if readelf := shutil.which("readelf"):
        told = subprocess.run([readelf, "-n", LIBRARY], capture_output=True, text=True).stdout
        assert f"Build ID: {found['build_id']}" in told
    # one without, of the same size
    data = Path(LIBRARY).read_bytes()
    plain = tmp_path / "plain.so"
    plain.write_bytes(data.replace(b"GNU\0", b"XNU\0"))
    (other,) = ask([str(plain), "r", True, []])
    assert other["build_id"] == ""
    assert other["digest"]
    plain.write_bytes(data.replace(b"GNU\0", b"XNU\0")[:-1] + b"!")
    (changed,) = ask([str(plain), "r", True, []])
    assert (changed["size"], changed["digest"] == other["digest"]) == (other["size"], False)


@pytest.mark.parametrize(
    "head",
    [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 200, b"\x7fELF\x02\x01" + b"\0" * 58,
     b"\x7fELF\x01\x01" + b"\0" * 200],
)  # fmt: skip
def test_what_is_no_elf_has_none(head: bytes, tmp_path: Path) -> None:
    assert build_id(tmp_path, head) == ""


def build_id(folder: Path, content: bytes) -> str:
    path = folder / "file"
    path.write_bytes(content)
    with path.open("rb") as file:
        return look.build_id(file.fileno())


def test_notes_that_lead_nowhere_end_the_search(tmp_path: Path) -> None:
    """A program header that points at notes whose sizes are nonsense."""
    header = bytearray(64 + 56)
    header[:6] = b"\x7fELF\x02\x01"
    header[32:40] = (64).to_bytes(8, "little")
    header[54:58] = (56).to_bytes(2, "little") + (1).to_bytes(2, "little")
    header[64:68] = (4).to_bytes(4, "little")
    header[72:80] = (120).to_bytes(8, "little")
    header[96:104] = (60).to_bytes(8, "little")
    assert build_id(tmp_path, bytes(header) + b"\xff" * 60) == ""
    assert build_id(tmp_path, bytes(header) + b"\0" * 60) == ""
    note = b"".join(n.to_bytes(4, "little") for n in (4, 20, 3)) + b"GNU\0" + bytes(range(20))
    assert build_id(tmp_path, bytes(header) + note.ljust(60)) == bytes(range(20)).hex()


def test_fifos_and_odd_names_are_told_apart(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    Path(odd).touch()
    fifo, missing, nul, here = ask(
        [str(tmp_path / "fifo"), "r", True, []],
        [str(tmp_path / "missing"), "r", True, []],
        ["/a\0b", "r", True, []],
        [odd, "rw", False, []],
    )
    assert "build_id" not in fifo
    assert missing == {"error": 2}
    assert nul == {"error": 22}
    assert here["size"] == 0


@pytest.mark.parametrize("take", [fcntl.flock, fcntl.lockf], ids=["flock", "range"])
def test_a_lock_of_somebody_else(
    tmp_path: Path, take: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    kind = "flock" if take is fcntl.flock else "range"
    with path.open("w") as file:
        take(file, fcntl.LOCK_SH if take is fcntl.flock else fcntl.LOCK_EX)
        (found,) = ask([str(path), "rw", False, [f"{kind} write 0 EOF"]])
        assert found["locked"] is True
        (found,) = ask([str(path), "rw", False, ["flock read 0 EOF"]])
        assert found["locked"] is False, "readers do not mind each other, nor do the two kinds"
        take(file, fcntl.LOCK_UN)
        (found,) = ask([str(path), "rw", False, [f"{kind} write 0 EOF"]])
        assert found["locked"] is False


def test_a_range_beside_the_locked_one_is_free(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 100)
        before, over = ask(
            [str(path), "rw", False, ["range write 0 99"]],
            [str(path), "rw", False, ["range read 0 100"]],
        )
    assert (before["locked"], over["locked"]) == (False, True)


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner can make the look say anything."""
    monkeypatch.setattr(files, "_MOST_ANSWER", 1 << 20)
    reading, writing = os.pipe()
    process = subprocess.Popen(["yes"], stdout=writing)
    os.close(writing)
    try:
        assert 1 << 20 <= len(files._read(reading, time.monotonic() + 60)) < 2 << 20
    finally:
        os.close(reading)
        assert process.wait() != 0, "whoever goes on writing is ended"


def test_nothing_is_asked_where_nothing_is_wanted() -> None:
    assert files.seen_by_owner(Credentials(1, 1, (), 0, False), 0, [], 1.0) == []
