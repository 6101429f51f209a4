"""What CRIU is given: by a stand-in that asks as CRIU does, and reads as it likes."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from slurm_reclaim.adapters.store.frames import BLOCK, FRAME
from slurm_reclaim.adapters.store.staging import Opened
from tests.parts.store.test_contents import ID, Shop

RANDOM = os.urandom(24 * FRAME)
SOFT = b"".join(number.to_bytes(8, "little") * (BLOCK // 8) for number in range(3000))
# whole frames, parts of them again, zeros, what is compressed, and an end within a block
MIXED = RANDOM[: 5 * FRAME] + bytes(300 * BLOCK) + RANDOM[BLOCK : 9 * FRAME] + SOFT + b"end"


class Asking:
    """Asks for images in CRIU's protocol (criu/img-streamer.c)."""

    def __init__(self, opened: Opened) -> None:
        opened.give()
        self._end = socket.socket(socket.AF_UNIX)
        self._end.connect(str(opened.criu / "streamer-serve.sock"))

    def open(self, name: str) -> int | None:
        """The end of a pipe to read from; None where there is no such image."""
        self.ask(name)
        (size,) = struct.unpack("<I", self._end.recv(4))
        if not self._end.recv(size)[1]:
            return None
        reading, writing = os.pipe()
        socket.send_fds(self._end, [b"\0"], [writing])
        os.close(writing)
        return reading

    def ask(self, name: str) -> None:
        raw = name.encode()
        message = bytes([0x0A, len(raw)]) + raw
        self._end.sendall(struct.pack("<I", len(message)) + message)

    def receive(self, size: int) -> bytes:
        return self._end.recv(size) if size else b""

    def close(self) -> None:
        self._end.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    shop = Shop(tmp_path_factory.mktemp("serve"))
    images = {"pages-1.img": RANDOM, "pages-2.img": MIXED, "pages-3.img": SOFT}
    shop.put(0, images | {"core-1.img": b"core", "files.img": b"f" * 200_000, "empty.img": b""})
    return shop


@contextmanager
def asking(shop: Shop) -> Iterator[Asking]:
    opened = shop.store.open(ID, 0)
    try:
        opened.ready()
        one = Asking(opened)
        yield one
        one.close()
        assert opened.trouble() == ""
    finally:
        opened.close()


def take(fd: int | None, most: int = 1 << 20, slow: bool = False) -> bytes:
    assert fd is not None
    found = []
    while piece := os.read(fd, most):
        found.append(piece)
        if slow and len(found) % 8 == 0:
            time.sleep(0.002)  # a reader that is late, not one that is waited for
    os.close(fd)
    return b"".join(found)


@pytest.mark.parametrize("most", [1 << 20, 70_001, 4096 * 3])
@pytest.mark.parametrize("slow", [False, True])
def test_pages_arrive_as_they_were_however_they_are_read(shop: Shop, most: int, slow: bool) -> None:
    with asking(shop) as criu:
        assert take(criu.open("pages-1.img"), most, slow) == RANDOM
        assert take(criu.open("pages-2.img"), most, slow) == MIXED


def test_what_waits_in_a_full_pipe_is_not_written_over(shop: Shop) -> None:
    """Everything that can be put together ahead is, before the first byte is read."""
    with asking(shop) as criu:
        fd = criu.open("pages-1.img")
        assert fd is not None
        unread = 0
        while unread < fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ):
            (unread,) = struct.unpack("i", fcntl.ioctl(fd, 0x541B, bytes(4)))
        time.sleep(0.2)  # for what must not happen
        assert take(fd) == RANDOM


def test_whoever_asks_early_waits_until_the_images_are_as_they_are_to_be(shop: Shop) -> None:
    opened = shop.store.open(ID, 0)
    try:
        with socket.socket(socket.AF_UNIX) as early:
            early.connect(str(opened.criu / "streamer-serve.sock"))
            early.sendall(struct.pack("<I", 12) + b"\x0a\x0acore-1.img")
            opened.ready()
            (opened.images / "core-1.img").write_bytes(b"edited")
            early.settimeout(0.1)
            with pytest.raises(TimeoutError):
                early.recv(4)
            opened.give()
            early.settimeout(30)
            assert early.recv(8) == struct.pack("<I", 2) + b"\x08\x01"
            reading, writing = os.pipe()
            socket.send_fds(early, [b"\0"], [writing])
            os.close(writing)
            assert take(reading) == b"edited"
    finally:
        opened.close()


def test_several_processes_are_read_at_once(shop: Shop) -> None:
    found: dict[str, bytes] = {}

    def one(name: str, fd: int | None) -> None:
        found[name] = take(fd, 1 << 16)

    with asking(shop) as criu:
        names = ("pages-1.img", "pages-2.img", "pages-3.img")
        threads = [threading.Thread(target=one, args=(name, criu.open(name))) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == dict(zip(names, (RANDOM, MIXED, SOFT), strict=True))


def test_small_images_larger_than_a_pipe_and_none_at_all(shop: Shop) -> None:
    with asking(shop) as criu:
        large, small = criu.open("files.img"), criu.open("core-1.img")
        assert (take(small), take(large)) == (b"core", b"f" * 200_000)
        assert take(criu.open("empty.img")) == b""
        assert criu.open("pages-9.img") is None


def test_a_reader_that_goes_away_leaves_the_others_alone(shop: Shop) -> None:
    with asking(shop) as criu:
        fd = criu.open("pages-1.img")
        assert fd is not None
        os.read(fd, 100)
        os.close(fd)
        assert take(criu.open("pages-2.img")) == MIXED


@pytest.mark.parametrize("read", [0, 3])
def test_a_criu_that_is_killed_is_no_trouble_of_the_store(shop: Shop, read: int) -> None:
    """Its exit status says what there is to say; with our answer unread the kernel resets."""
    opened = shop.store.open(ID, 0)
    try:
        opened.ready()
        one = Asking(opened)
        one.ask("core-1.img")
        time.sleep(0.2)
        one.receive(read)
        one.close()
        time.sleep(0.2)
        assert opened.trouble() == ""
    finally:
        opened.close()


def test_not_a_byte_of_a_damaged_frame_arrives(tmp_path_factory: pytest.TempPathFactory) -> None:
    shop = Shop(tmp_path_factory.mktemp("damaged"))
    shop.put(0, {"pages-1.img": RANDOM})
    (pack,) = shop.store._packs(ID).iterdir()
    damaged = bytearray(pack.read_bytes())
    # Frames lie in the order in which they were ready.
    damaged[damaged.index(RANDOM[10 * FRAME :][:BLOCK]) + FRAME // 2] ^= 1
    pack.write_bytes(damaged)
    opened = shop.store.open(ID, 0)
    try:
        opened.ready()
        criu = Asking(opened)
        got = take(criu.open("pages-1.img"))
        assert got == RANDOM[: 10 * FRAME]
        assert "frame 10 of" in opened.trouble()
        criu.close()
    finally:
        opened.close()
