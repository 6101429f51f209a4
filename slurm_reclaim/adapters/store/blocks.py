"""Streams cut into blocks of 4 KiB, each stored once in the life of a session.

A block is known by 16 bytes of XXH3 under a secret seed of the session's (nobody can make two that
collide without knowing it, and only the owner's own data is ever compared). It is found again by
its content wherever it moves: an idle kernel's pages change places in CRIU's files, but not what
is in them. Where a block lies is an address: the pack, then `frame * 256 + slot`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import zstandard

from slurm_reclaim.adapters.store.frames import BLOCK, FRAME_BLOCKS, Blocks
from slurm_reclaim.adapters.store.packs import HASH, PackReader, PackWriter
from slurm_reclaim.errors import IntegrityError

ZEROS = -1
_PACK_SHIFT = 40
_EMPTY = bytes(HASH)
_SPLIT = struct.Struct(f"{HASH}s")
# Blocks found by themselves: about 100 MiB of memory. With more, every second is dropped, again and
# again; those between are found because they follow one that was.
_MOST_KNOWN = 1 << 19


class Stream(msgspec.Struct):
    """One image, archive or file: `size` bytes, in runs of (pack, first address, blocks); the pack
    -1 stands for zeros. `bulk`: large, and read from front to back only."""

    name: str
    size: int
    bulk: bool
    runs: list[tuple[int, int, int]]


class Index(msgspec.Struct):
    """What a checkpoint consists of; `packs` are names, by which the runs count."""

    version: int
    packs: list[str]
    streams: list[Stream]


def encode(index: Index) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(msgspec.msgpack.encode(index))


def decode(raw: bytes) -> Index:
    """Raises IntegrityError."""
    try:
        plain = zstandard.ZstdDecompressor().decompressobj().decompress(raw)
        index = msgspec.msgpack.decode(plain, type=Index)
    except (zstandard.ZstdError, msgspec.MsgspecError) as error:
        raise IntegrityError(f"the index can't be read: {error}") from error
    if index.version != 1:
        raise IntegrityError(f"the index has the unknown version {index.version}")
    for stream in index.streams:
        blocks = sum(count for _, _, count in stream.runs)
        if blocks != -(-stream.size // BLOCK) or any(run[2] <= 0 for run in stream.runs):
            raise IntegrityError(f"the index does not tell where {stream.name} is")
    return index


class _Known:
    """Where blocks lie that were stored before, in this dump or an earlier one."""

    def __init__(self, packs: Sequence[PackReader]) -> None:
        self.hashes = [bytearray(pack.hashes()) for pack in packs]
        self._at: dict[bytes, int] = {}
        self._every = 1
        self._thin_out(sum(len(hashes) // HASH for hashes in self.hashes))
        for number, hashes in enumerate(self.hashes):
            first = number << _PACK_SHIFT
            each = (hash for (hash,) in _SPLIT.iter_unpack(hashes))
            self.add_all(each, range(first, first + len(hashes) // HASH))
        self.hashes.append(bytearray())

    def add(self, hash: bytes, address: int) -> None:
        if hash == _EMPTY or hash[0] % self._every:
            return
        self._at[hash] = address
        self._thin_out(len(self._at))

    def add_all(self, hashes: Iterable[bytes], addresses: range) -> None:
        each = zip(hashes, addresses, strict=True)
        every = self._every
        self._at.update(each if every == 1 else ((h, a) for h, a in each if not h[0] % every))
        self._at.pop(_EMPTY, None)
        self._thin_out(len(self._at))

    def _thin_out(self, known: int) -> None:
        """Where so many are, or will be, known."""
        every = self._every
        while known > _MOST_KNOWN and every < 256:
            every, known = every * 2, known // 2
        if every != self._every:
            self._every = every
            self._at = {h: a for h, a in self._at.items() if not h[0] % every}

    def knows_any(self, hashes: Sequence[bytes]) -> bool:
        return not self._at.keys().isdisjoint(hashes)

    def follows(self, expected: int, joined: bytes) -> bool:
        """Whether the blocks of these hashes lie one after the other at `expected`."""
        at = (expected & ((1 << _PACK_SHIFT) - 1)) * HASH
        return self.hashes[expected >> _PACK_SHIFT][at : at + len(joined)] == joined

    def find(self, hash: bytes, expected: int) -> int | None:
        """Where this content is; looked for at `expected` first."""
        if expected >= 0:
            hashes = self.hashes[expected >> _PACK_SHIFT]
            at = (expected & ((1 << _PACK_SHIFT) - 1)) * HASH
            if hashes[at : at + HASH] == hash:
                return expected
        return self._at.get(hash)


class _Open(msgspec.Struct):
    """A frame being filled."""

    number: int = -1
    blocks: bytearray = msgspec.field(default_factory=bytearray)


class BlockWriter:
    """Stores the blocks of streams in a new pack, but for those that `packs` have already."""

    def __init__(self, writer: PackWriter, packs: Sequence[PackReader], seed: int) -> None:
        self._writer = writer
        self._names = [*(pack.name for pack in packs), writer.path.name]
        self._known = _Known(packs)
        self._new = len(packs)
        self._seed = seed
        # Late: an agent reads indexes, and has others write blocks.
        from xxhash import xxh3_128_digest

        self._hash = xxh3_128_digest
        self._zero = self._hash(bytes(BLOCK), seed)
        # Small images lie together, so that they can be read without the memory around them.
        self._open = {True: _Open(), False: _Open()}
        self._streams: list[Stream] = []

    def stream(self, name: str, *, bulk: bool) -> Stream:
        opened = Stream(name, 0, bulk, [])
        self._streams.append(opened)
        return opened

    def write(self, stream: Stream, data: memoryview) -> None:
        """Append to a stream, a frame at most; only the last piece may end within a block."""
        stream.size += len(data)
        if odd := len(data) % BLOCK:
            data = memoryview(bytes(data) + bytes(BLOCK - odd))
        hash_of, seed = self._hash, self._seed
        hashes = [hash_of(data[at : at + BLOCK], seed) for at in range(0, len(data), BLOCK)]
        if not self._write_at_once(stream, data, hashes):
            for number, hash in enumerate(hashes):
                if hash == self._zero:
                    self._add_run(stream, ZEROS, 1)
                    continue
                found = self._known.find(hash, self._next(stream))
                if found is None:
                    found = self._store(
                        stream.bulk, hash, data[number * BLOCK : (number + 1) * BLOCK]
                    )
                self._add_run(stream, found, 1)

    def _write_at_once(self, stream: Stream, data: memoryview, hashes: list[bytes]) -> bool:
        """The three things that most memory is, without a look at each block: what follows in the
        last checkpoint, zeros, and a frame of what is all new."""
        joined, expected = b"".join(hashes), self._next(stream)
        if expected >= 0 and self._known.follows(expected, joined):
            self._add_run(stream, expected, len(hashes))
            return True
        different = set(hashes)
        if different == {self._zero}:
            self._add_run(stream, ZEROS, len(hashes))
            return True
        # A frame that is being filled waits: what comes next in the stream may be in a later one.
        whole = len(different) == len(hashes) == FRAME_BLOCKS
        if not whole or self._zero in different or self._known.knows_any(hashes):
            return False
        number = self._begin()
        first = self._new << _PACK_SHIFT | number * FRAME_BLOCKS
        self._known.hashes[self._new][number * FRAME_BLOCKS * HASH :] = joined
        self._known.add_all(hashes, range(first, first + FRAME_BLOCKS))
        self._writer.fill(number, bytes(data))
        self._add_run(stream, first, FRAME_BLOCKS)
        return True

    @staticmethod
    def _next(stream: Stream) -> int:
        """The address behind the last run's end, -1 behind zeros and at the start."""
        if not stream.runs or stream.runs[-1][0] < 0:
            return -1
        pack, first, count = stream.runs[-1]
        return (pack << _PACK_SHIFT | first) + count

    def _add_run(self, stream: Stream, address: int, count: int) -> None:
        pack, first = (ZEROS, 0) if address < 0 else (
            address >> _PACK_SHIFT, address & ((1 << _PACK_SHIFT) - 1)
        )  # fmt: skip
        if stream.runs:
            last_pack, last_first, last_count = stream.runs[-1]
            if pack == last_pack and (pack < 0 or first == last_first + last_count):
                stream.runs[-1] = (pack, last_first, last_count + count)
                return
        stream.runs.append((pack, first, count))

    def _begin(self) -> int:
        self._known.hashes[self._new] += bytes(HASH * FRAME_BLOCKS)
        return self._writer.begin()

    def _store(self, bulk: bool, hash: bytes, block: memoryview) -> int:
        frame = self._open[bulk]
        if frame.number < 0:
            frame.number, frame.blocks = self._begin(), bytearray()
        slot = frame.number * FRAME_BLOCKS + len(frame.blocks) // BLOCK
        frame.blocks += block
        self._known.hashes[self._new][slot * HASH : (slot + 1) * HASH] = hash
        address = self._new << _PACK_SHIFT | slot
        self._known.add(hash, address)
        if len(frame.blocks) == BLOCK * FRAME_BLOCKS:
            self._close(frame)
        return address

    def _close(self, frame: _Open) -> None:
        if frame.number >= 0:
            self._writer.fill(frame.number, frame.blocks)
            frame.number, frame.blocks = -1, bytearray()

    def finish(self) -> tuple[Index, bytearray]:
        """The index, which names the packs that are used, and the hashes of the new pack."""
        for frame in self._open.values():
            self._close(frame)
        used = sorted({run[0] for stream in self._streams for run in stream.runs} | {self._new})
        place = {old: new for new, old in enumerate(n for n in used if n >= 0)} | {ZEROS: ZEROS}
        for stream in self._streams:
            stream.runs = [(place[pack], first, count) for pack, first, count in stream.runs]
        names = [self._names[number] for number in place if number >= 0]
        return Index(1, names, self._streams), self._known.hashes[self._new]


class Batch(msgspec.Struct):
    """About a frame of a stream: (pack, frame, first slot, blocks), each within one frame, pack -1
    for zeros; and how many bytes of them the stream has."""

    runs: list[tuple[int, int, int, int]] = []
    blocks: int = 0
    size: int = 0


def batches(stream: Stream) -> Iterator[Batch]:
    """The whole stream, front to back."""
    left, batch = stream.size, Batch()
    for run in _within_frames(stream):
        batch.runs.append(run)
        batch.blocks += run[3]
        if batch.blocks >= FRAME_BLOCKS:
            batch.size = min(left, batch.blocks * BLOCK)
            left -= batch.size
            yield batch
            batch = Batch()
    if batch.runs:
        batch.size = left
        yield batch


def _within_frames(stream: Stream) -> Iterator[tuple[int, int, int, int]]:
    for pack, first, count in stream.runs:
        while count:
            frame, slot = (0, 0) if pack < 0 else divmod(first, FRAME_BLOCKS)
            here = min(count, FRAME_BLOCKS - slot)
            yield pack, frame, slot, here
            first, count = first + here, count - here


def assemble(batch: Batch, packs: Sequence[PackReader]) -> Blocks:
    """The bytes of a batch, checked. Raises IntegrityError."""
    pieces: list[Blocks] = []
    for pack, frame, slot, count in batch.runs:
        if pack < 0:
            pieces.append(bytes(count * BLOCK))
            continue
        if pack >= len(packs):
            raise IntegrityError("the index counts on a pack that it does not name")
        stored = packs[pack].frame(frame)
        piece = stored if count == FRAME_BLOCKS else stored[slot * BLOCK : (slot + count) * BLOCK]
        if len(piece) != count * BLOCK:
            raise IntegrityError(f"frame {frame} of {packs[pack].name} is shorter than told")
        pieces.append(piece)
    whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return whole if len(whole) == batch.size else whole[: batch.size]


def read(stream: Stream, packs: Sequence[PackReader]) -> Iterator[Blocks]:
    """The bytes of a stream, checked, about a frame at a time. Raises IntegrityError."""
    return (assemble(batch, packs) for batch in batches(stream))
