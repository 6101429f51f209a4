"""Frames: up to 256 blocks of 4 KiB that are compressed, and checked, together.

A stored frame is one byte that names the coding and the payload. What doesn't get smaller, as a
sample of it shows, is kept as it is: trying to compress random numbers costs more than writing
them.
"""

from __future__ import annotations

import threading
from typing import Protocol

import zstandard
from blake3 import blake3

from slurm_reclaim.errors import IntegrityError

BLOCK = 4096
FRAME_BLOCKS = 256
FRAME = BLOCK * FRAME_BLOCKS
DIGEST = 32
RAW, ZSTD = b"R", b"Z"
_SAMPLE, _SAMPLES = 4 * BLOCK, 4
# A sample that shrinks by less than this is not worth compressing.
_WORTHWHILE = 0.95


class Cipher(Protocol):
    """Encrypts each frame of a pack under a number that never comes twice in that pack."""

    def encrypt(self, data: bytes, number: int) -> bytes: ...

    def decrypt(self, data: bytes, number: int) -> bytes:
        """Raises IntegrityError where `data` is not what was encrypted under `number`."""
        ...


# What is not to be changed any more.
Blocks = bytes | memoryview
# One frame as it is stored, in pieces, so that what is kept as it is need not be copied.
Stored = tuple[bytes | bytearray | memoryview, ...]


def digest(*stored: bytes | bytearray | memoryview) -> bytes:
    hasher = blake3()
    for piece in stored:
        hasher.update(piece)
    return hasher.digest()


class FrameCodec:
    """From blocks to what is stored and back; used by several threads. `level` is zstd's."""

    def __init__(self, level: int = 1, cipher: Cipher | None = None) -> None:
        self._level = level
        self._cipher = cipher
        self._own = threading.local()

    def encode(self, blocks: bytes | bytearray, number: int) -> Stored:
        coded = self._compressed(blocks)
        return coded if self._cipher is None else (self._cipher.encrypt(b"".join(coded), number),)

    def _compressed(self, blocks: bytes | bytearray) -> Stored:
        if self._shrinks(memoryview(blocks)):
            packed = self._compressor().compress(blocks)
            if len(packed) < len(blocks):
                return ZSTD, packed
        return RAW, blocks

    def _shrinks(self, blocks: memoryview) -> bool:
        if len(blocks) <= 4 * _SAMPLE * _SAMPLES:
            return True
        step = len(blocks) // _SAMPLES
        sample = b"".join(blocks[at : at + _SAMPLE] for at in range(0, step * _SAMPLES, step))
        return len(self._compressor().compress(sample)) < _WORTHWHILE * len(sample)

    def decode(self, stored: bytes, number: int, size: int) -> Blocks:
        """`size`: bytes of the blocks. Raises IntegrityError where it is not a frame of that."""
        coded = stored if self._cipher is None else self._cipher.decrypt(stored, number)
        kind, payload = coded[:1], memoryview(coded)[1:]
        if kind == RAW:
            blocks: Blocks = payload
        elif kind == ZSTD:
            try:
                blocks = self._decompressor().decompress(payload, max_output_size=size)
            except zstandard.ZstdError as error:
                raise IntegrityError(f"frame {number} can't be decompressed: {error}") from error
        else:
            raise IntegrityError(f"frame {number} has an unknown coding {kind!r}")
        if len(blocks) != size:
            raise IntegrityError(f"frame {number} has {len(blocks)} bytes, not {size}")
        return blocks

    def _compressor(self) -> zstandard.ZstdCompressor:
        if not hasattr(self._own, "compressor"):
            self._own.compressor = zstandard.ZstdCompressor(level=self._level)
        return self._own.compressor  # type: ignore[no-any-return]

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        if not hasattr(self._own, "decompressor"):
            self._own.decompressor = zstandard.ZstdDecompressor()
        return self._own.decompressor  # type: ignore[no-any-return]
