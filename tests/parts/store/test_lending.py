"""Memory that is lent to a pipe: whole, in order, and as it was until it was read."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from slurm_reclaim.adapters.store.lending import Ring

SLOTS, SIZE = 4, 64 << 10
ROOT = Path(__file__).parents[3]
# Its words: number of the system call that is refused, then the errno (seccomp(2)).
REFUSED = """
import ctypes, errno, os, struct, sys, threading
from slurm_reclaim.adapters.store.lending import Ring
NUMBER, ERROR = 278, int(sys.argv[1])  # vmsplice of x86-64
lines = [(0x20, 0, 0, 0), (0x15, 0, 1, NUMBER), (6, 0, 0, 0x50000 | ERROR), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
program = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
reading, writing = os.pipe()
ring, data = Ring(writing, 4, 1 << 16), os.urandom(9 << 16)
got = bytearray()
def read():
    while block := os.read(reading, 1 << 16):
        got.extend(block)
reader = threading.Thread(target=read)
reader.start()
for at in range(0, len(data), 1 << 16):
    slot = ring.take()
    ring.room(slot)[:] = data[at:at + (1 << 16)]
    ring.lend(slot, 1 << 16)
os.close(writing)
reader.join()
assert got == data
"""


def feed(ring: Ring, data: bytes, size: int) -> None:
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        slot = ring.take()
        ring.room(slot)[: len(piece)] = piece
        ring.lend(slot, len(piece))


@pytest.mark.parametrize("capacity", [4096, 64 << 10, 1 << 20], ids=["small", "usual", "large"])
@pytest.mark.parametrize("size", [5, 4097, SIZE], ids=["bytes", "odd", "slots"])
def test_it_comes_out_as_it_went_in(capacity: int, size: int) -> None:
    """Also where all slots, and more, have room in the pipe at once, and its reader is slow."""
    data = os.urandom(size * 50)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, capacity)

    def lend() -> None:
        try:
            feed(Ring(writing, SLOTS, SIZE), data, size)
        finally:
            os.close(writing)

    feeder = threading.Thread(target=lend)
    feeder.start()
    got = bytearray()
    time.sleep(0.05)
    while block := os.read(reading, 10_000):
        got += block
        time.sleep(0.0001)
    feeder.join()
    os.close(reading)
    assert got == data


def test_what_is_lent_outlives_the_ring() -> None:
    data = os.urandom(SIZE)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 2 * SIZE)
    feed(Ring(writing, SLOTS, SIZE), data, SIZE)
    os.close(writing)
    others = [bytearray(os.urandom(SIZE)) for _ in range(50)]
    assert b"".join(iter(lambda: os.read(reading, SIZE), b"")) == data
    assert len(others) == 50
    os.close(reading)


@pytest.mark.parametrize("capacity", [4096, 1 << 20], ids=["in the pipe", "for a slot"])
def test_a_reader_that_is_gone_is_not_waited_for(capacity: int) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, capacity)
    threading.Timer(0.2, os.close, [reading]).start()
    with pytest.raises(BrokenPipeError):
        feed(Ring(writing, SLOTS, SIZE), os.urandom(40 * SIZE), SIZE)
    os.close(writing)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of the system call")
@pytest.mark.parametrize("error", [1, 38], ids=["EPERM", "ENOSYS"])
def test_where_nothing_can_be_lent_it_is_copied(error: int) -> None:
    words = [sys.executable, "-c", REFUSED, str(error)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
