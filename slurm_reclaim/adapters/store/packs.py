"""Packs: one immutable file of frames, written by one dump, read by every checkpoint of the same
session that shares its contents.

    frames ... | hashes | table | footer

`hashes` are 16 bytes a block (see blocks.py), by which the next dump finds what it need not write
again. The `table` says where each frame lies, how long it is and its BLAKE3; the manifest names the
BLAKE3 of the table, so that a frame is trusted because the sealed manifest is. The footer says
where the table begins.
"""

from __future__ import annotations

import os
import struct
import threading
from array import array
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from slurm_reclaim.adapters.store.appending import Appender
from slurm_reclaim.adapters.store.frames import (
    BLOCK,
    DIGEST,
    FRAME_BLOCKS,
    Blocks,
    Cipher,
    FrameCodec,
    digest,
)
from slurm_reclaim.adapters.store.parts import FilePart, PartOf
from slurm_reclaim.adapters.store.private import open_private
from slurm_reclaim.errors import IntegrityError

HASH = 16
_FOOTER = struct.Struct("<8sQQ")
_MAGIC = b"RCLMPACK"
_VERSION = 1
# Frames on their way to the disk: what bounds the memory of a dump.
_PENDING = 8
_CACHED = 32


class _Table(msgspec.Struct):
    """Arrays by frame number; `hashes`: where, how long, digest."""

    version: int
    offsets: bytes
    lengths: bytes
    blocks: bytes
    digests: bytes
    hashes: tuple[int, int, bytes]


class PackWriter:
    """Frames are numbered when they are begun and stored as they come out of their compression,
    which, like the writing, runs beside the caller. OSError where the disk says no."""

    def __init__(self, path: Path, codec: FrameCodec, workers: int) -> None:
        self.path = path
        self._codec = codec
        self._file = Appender(path)
        self._offsets, self._lengths, self._blocks = array("Q"), array("I"), array("H")
        self._digests = bytearray()
        self._error: BaseException | None = None
        self._pool = ThreadPoolExecutor(workers)
        self._room = threading.Semaphore(_PENDING)
        self._turn = threading.Lock()

    def begin(self) -> int:
        """The number of a new frame."""
        with self._turn:
            self._offsets.append(0)
            self._lengths.append(0)
            self._blocks.append(0)
            self._digests += bytes(DIGEST)
            return len(self._offsets) - 1

    def fill(self, number: int, blocks: bytes | bytearray) -> None:
        """Store frame `number`; `blocks` must not be touched any more. Waits while too many are on
        their way."""
        self._raise()
        self._room.acquire()
        self._pool.submit(self._store, number, blocks)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _store(self, number: int, blocks: bytes | bytearray) -> None:
        try:
            stored = self._codec.encode(blocks, number)
            named, length = digest(*stored), sum(map(len, stored))
            with self._turn:
                self._offsets[number], self._lengths[number] = self._file.size, length
                self._blocks[number] = len(blocks) // BLOCK
                self._digests[number * DIGEST : (number + 1) * DIGEST] = named
                self._file.append(*stored)
        except BaseException as error:
            self._error = error
        finally:
            self._room.release()

    def finish(self, hashes: bytes | bytearray) -> FilePart:
        """Write the rest, make it durable and close. The part is named by the file's name."""
        self._pool.shutdown()
        self._raise()
        stored = self._codec.encode(bytes(hashes), len(self._offsets))
        place = (self._file.size, sum(map(len, stored)), digest(*stored))
        self._file.append(*stored)
        table = msgspec.msgpack.encode(
            _Table(
                _VERSION,
                self._offsets.tobytes(),
                self._lengths.tobytes(),
                self._blocks.tobytes(),
                bytes(self._digests),
                place,
            )
        )
        at = self._file.size
        self._file.append(table, _FOOTER.pack(_MAGIC, at, len(table)))
        self._file.finish()
        return FilePart(self.path.name, self._file.size, digest(table).hex())


class PackReader:
    """Raises IntegrityError, naming the pack, where it is not the one that `part` describes;
    OSError where it can't be read. `frame` may be called by several threads."""

    def __init__(self, path: Path, part: PartOf, codec: FrameCodec) -> None:
        self.name = part.path
        self._codec = codec
        self._lock = threading.Lock()
        self._cache: OrderedDict[int, Blocks] = OrderedDict()
        # Not followed, not waited for: whatever lies there must be the plain file we wrote.
        self._fd = open_private(path, what=part.path)
        try:
            self._table = self._read_table(part)
            self._spread()
        except BaseException:
            os.close(self._fd)
            raise

    def _read_table(self, part: PartOf) -> _Table:
        size = os.fstat(self._fd).st_size
        if size != part.size or size < _FOOTER.size:
            raise IntegrityError(f"{self.name} has {size} bytes, {part.size} were written")
        magic, at, length = _FOOTER.unpack(self._read(size - _FOOTER.size, _FOOTER.size))
        if magic != _MAGIC or at + length + _FOOTER.size != size:
            raise IntegrityError(f"{self.name} is not a pack")
        raw = self._read(at, length)
        if digest(raw).hex() != part.digest:
            raise IntegrityError(f"the table of {self.name} is not what was written")
        try:
            table = msgspec.msgpack.decode(raw, type=_Table)
        except msgspec.MsgspecError as error:
            raise IntegrityError(f"the table of {self.name}: {error}") from error
        if table.version != _VERSION:
            raise IntegrityError(f"{self.name} has the unknown version {table.version}")
        return table

    def _spread(self) -> None:
        self._offsets, self._lengths, self._blocks = array("Q"), array("I"), array("H")
        self._offsets.frombytes(self._table.offsets)
        self._lengths.frombytes(self._table.lengths)
        self._blocks.frombytes(self._table.blocks)
        self._digests = self._table.digests

    def _read(self, at: int, size: int) -> bytes:
        """Read, never mapped: where the disk fails, a mapping ends the process
        with SIGBUS, a read says so."""
        pieces = []
        while size:
            piece = os.pread(self._fd, size, at)
            if not piece:
                raise IntegrityError(f"{self.name} ends early")
            pieces.append(piece)
            at, size = at + len(piece), size - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def frames(self) -> int:
        return len(self._offsets)

    def hashes(self) -> Blocks:
        """16 bytes for each of 256 blocks a frame, by frame number."""
        at, length, named = self._table.hashes
        stored = self._read(at, length)
        if digest(stored) != named:
            raise IntegrityError(f"the hashes of {self.name} are not what was written")
        return self._codec.decode(stored, self.frames, self.frames * FRAME_BLOCKS * HASH)

    def frame(self, number: int, *, keep: bool = True) -> Blocks:
        """The blocks of a frame, checked. With `keep` the last few are remembered."""
        with self._lock:
            if number in self._cache:
                self._cache.move_to_end(number)
                return self._cache[number]
        if not 0 <= number < self.frames:
            raise IntegrityError(f"{self.name} has no frame {number}")
        stored = self._read(self._offsets[number], self._lengths[number])
        if digest(stored) != self._digests[number * DIGEST : (number + 1) * DIGEST]:
            raise IntegrityError(f"frame {number} of {self.name} is not what was written")
        blocks = self._codec.decode(stored, number, self._blocks[number] * BLOCK)
        if keep:
            with self._lock:
                self._cache[number] = blocks
                while len(self._cache) > _CACHED:
                    self._cache.popitem(last=False)
        return blocks

    def compare(self) -> None:
        """Read everything that is stored and compare it, without making blocks of it."""
        for number in range(self.frames):
            stored = self._read(self._offsets[number], self._lengths[number])
            if digest(stored) != self._digests[number * DIGEST : (number + 1) * DIGEST]:
                raise IntegrityError(f"frame {number} of {self.name} is not what was written")
        at, length, named = self._table.hashes
        if digest(self._read(at, length)) != named:
            raise IntegrityError(f"the hashes of {self.name} are not what was written")

    def verify(self) -> None:
        """Read everything."""
        for number in range(self.frames):
            if self._blocks[number]:
                self.frame(number, keep=False)
        self.hashes()

    def close(self) -> None:
        os.close(self._fd)


def cipher_for(pack: str, secret: str) -> Cipher | None:
    """`secret` as for `open_pack`."""
    if not secret:
        return None
    # Where nothing is encrypted a program of ours starts in half of the time without it.
    from slurm_reclaim.adapters.store.cipher import cipher_of

    return cipher_of(secret, pack)


def open_pack(folder: Path, part: PartOf, secret: str) -> PackReader:
    """A pack in `folder`; `secret` as `DataKey.hex` gives it, "" where it is not encrypted. Raises
    what PackReader raises, and IntegrityError where it is missing."""
    codec = FrameCodec(cipher=cipher_for(part.path, secret))
    try:
        return PackReader(folder / part.path, part, codec)
    except FileNotFoundError:
        raise IntegrityError(f"the pack {part.path} is missing") from None
