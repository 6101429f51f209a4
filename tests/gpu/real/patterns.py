#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process that has something on a real GPU and can say whether it is all still there.

    patterns.py PATTERN FOLDER [--mib N] [--seed N]

It is asked by files: `FOLDER/ask-1` holds a word, the answer comes as `FOLDER/answer-1` (JSON), and
so on; `answer-0` says that all is set up. Nothing is held open meanwhile, so that CRIU can save it
at any time. The driver is called by ctypes alone; `torch` and `cublas` need PyTorch.

    verify  {"wrong": ""} where every byte is as it was, else what is not
    work    go on for a while; {"digest": ...} of what came out, the same on every run of one seed
    bandwidth   GB/s of plain copies: {"down", "up": pageable, "down_pinned", "up_pinned"}
    end
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MIB = 1 << 20
BLOCK = 64 * MIB
MANAGED_GLOBAL = 1
SIZES = (1, 3, 255, 256, 4095, 65537, MIB - 1, MIB, 2 * MIB + 1, 7 * MIB, BLOCK)


class CudaError(Exception):
    pass


class Cuda:
    """The driver's calls, their codes made exceptions, and a context on the first card."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.context = context

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            said = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(said))
            raise CudaError(f"{name}: {(said.value or b'?').decode()} ({code})")

    def has(self, name: str) -> bool:
        return hasattr(self._library, name)

    def memory(self, size: int, managed: bool = False) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        if managed:
            length = ctypes.c_size_t(size)
            self.call("cuMemAllocManaged", ctypes.byref(address), length, MANAGED_GLOBAL)
        else:
            self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def pinned(self, size: int) -> ctypes.c_void_p:
        address = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), 0)
        return address

    def put(self, to: ctypes.c_uint64, what: Any, size: int) -> None:
        self.call("cuMemcpyHtoD_v2", to, what, ctypes.c_size_t(size))

    def get(self, into: Any, at: ctypes.c_uint64, size: int) -> None:
        self.call("cuMemcpyDtoH_v2", into, at, ctypes.c_size_t(size))

    def free(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value


def _bytes(buffer: Any, size: int) -> memoryview:
    return memoryview(buffer).cast("B")[:size]


class Contents:
    """Bytes that can be made again: one random block, and each piece begins with its number."""

    def __init__(self, seed: int) -> None:
        self._block = random.Random(seed).randbytes(BLOCK)

    def of(self, number: int, size: int) -> bytes:
        head = number.to_bytes(8, "little")[:size]
        return head + self._block[len(head) : size]


class Pieces:
    """Device memory in pieces of given sizes."""

    managed = False

    def __init__(self, seed: int, mib: int) -> None:
        self.cuda, self.contents = Cuda(), Contents(seed)
        self.pieces = []
        for number, size in enumerate(self.sizes(mib)):
            address = self.cuda.memory(size, self.managed)
            self.cuda.put(address, self.contents.of(number, size), size)
            self.pieces.append((address, size))

    def sizes(self, mib: int) -> Iterator[int]:
        """All sizes again and again, until there are `mib` MiB."""
        left = mib * MIB
        while left > 0:
            for size in SIZES:
                yield min(size, max(left, 1))
                left -= size

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.pieces)

    def verify(self) -> str:
        back = ctypes.create_string_buffer(BLOCK)
        for number, (address, size) in enumerate(self.pieces):
            self.cuda.get(back, address, size)
            if _bytes(back, size) != self.contents.of(number, size):
                return f"piece {number} of {size} bytes differs"
        return ""

    def work(self) -> str:
        """New contents everywhere."""
        for number, (address, size) in enumerate(self.pieces):
            self.cuda.put(address, self.contents.of(number + 1, size), size)
        back, digest = ctypes.create_string_buffer(BLOCK), hashlib.sha256()
        for address, size in self.pieces:
            self.cuda.get(back, address, size)
            digest.update(_bytes(back, size))
        return digest.hexdigest()


class Managed(Pieces):
    managed = True


class Fill(Pieces):
    """All that is free but a tenth, or `mib`."""

    def sizes(self, mib: int) -> Iterator[int]:
        total = mib * MIB or self.cuda.free() * 9 // 10
        for _ in range(total // BLOCK):
            yield BLOCK


class Pinned(Pieces):
    """Half of it in pinned host memory as well, which the driver maps into its own."""

    def __init__(self, seed: int, mib: int) -> None:
        super().__init__(seed, mib // 2)
        self.host = []
        for number in range(max(1, mib * MIB // 2 // BLOCK)):
            address = self.cuda.pinned(BLOCK)
            ctypes.memmove(address, self.contents.of(1000 + number, BLOCK), BLOCK)
            self.host.append(address)

    def verify(self) -> str:
        for number, address in enumerate(self.host):
            if ctypes.string_at(address, BLOCK) != self.contents.of(1000 + number, BLOCK):
                return f"pinned block {number} differs"
        # and it can still be copied from, at the speed of pinned memory or not
        self.cuda.put(self.pieces[-1][0], self.host[0], self.pieces[-1][1])
        self.cuda.put(self.pieces[-1][0], self.contents.of(len(self.pieces) - 1, BLOCK),
                      self.pieces[-1][1])  # fmt: skip
        return super().verify()


class Streams(Pieces):
    """Work in flight on four streams whenever it is looked at: each counts in memory of its own."""

    COUNT, WORDS = 4, 16 * MIB // 4

    def __init__(self, seed: int, mib: int) -> None:
        super().__init__(seed, mib)
        self.streams = [ctypes.c_void_p() for _ in range(self.COUNT)]
        self.counters = [self.cuda.memory(self.WORDS * 4) for _ in range(self.COUNT)]
        for stream in self.streams:
            self.cuda.call("cuStreamCreate", ctypes.byref(stream), 1)
        self.issued = [0] * self.COUNT
        self.pause, self.paused = threading.Event(), threading.Event()
        threading.Thread(target=self._keep_busy, daemon=True).start()

    def _keep_busy(self) -> None:
        self.cuda.call("cuCtxSetCurrent", self.cuda.context)
        while True:
            if self.pause.is_set():
                self.paused.set()
                time.sleep(0.01)
                continue
            self.paused.clear()
            for each in range(self.COUNT):
                for _ in range(32):
                    self.issued[each] += 1
                    self.cuda.call(
                        "cuMemsetD32Async", self.counters[each],
                        ctypes.c_uint32(self.issued[each] & 0xFFFFFFFF),
                        ctypes.c_size_t(self.WORDS), self.streams[each],
                    )  # fmt: skip
            for stream in self.streams:
                self.cuda.call("cuStreamSynchronize", stream)

    def verify(self) -> str:
        self.pause.set()
        self.paused.wait()
        try:
            return self._counters() or super().verify()
        finally:
            self.pause.clear()

    def _counters(self) -> str:
        back = (ctypes.c_uint32 * self.WORDS)()
        for each, address in enumerate(self.counters):
            self.cuda.call("cuStreamSynchronize", self.streams[each])
            self.cuda.get(back, address, self.WORDS * 4)
            wanted = self.issued[each].to_bytes(4, "little") * self.WORDS
            if bytes(back) != wanted:
                return f"stream {each} has {back[0]} instead of {self.issued[each]}"
        return ""


def bandwidth(cuda: Cuda) -> dict[str, float]:
    """GB/s of one copy of 1 GiB (or what fits) each way."""
    size = min(1024 * MIB, cuda.free() // 2)
    device = cuda.memory(size)
    hosts: dict[str, Any] = {"": ctypes.create_string_buffer(size)}
    if cuda.has("cuMemHostAlloc"):
        hosts["_pinned"] = cuda.pinned(size)
    found = {}
    for kind, host in hosts.items():
        for way, copy in (("up", lambda h: cuda.put(device, h, size)),
                          ("down", lambda h: cuda.get(h, device, size))):  # fmt: skip
            copy(host)
            began = time.perf_counter()
            copy(host)
            found[way + kind] = size / (time.perf_counter() - began) / 1e9
    cuda.call("cuMemFree_v2", device)
    return found


def made(name: str, seed: int, mib: int) -> Any:
    if name in ("torch", "cublas"):
        from torch_patterns import Matmul, Training  # beside this file

        return (Training if name == "torch" else Matmul)(seed, mib)
    return {
        "sizes": Pieces, "fill": Fill, "managed": Managed, "pinned": Pinned, "streams": Streams,
    }[name](seed, mib)  # fmt: skip


def answer(pattern: Any, word: str) -> dict[str, Any]:
    if word == "verify":
        return {"wrong": pattern.verify()}
    if word == "work":
        return {"digest": pattern.work()}
    if word == "bandwidth":
        return bandwidth(pattern.cuda)
    return {}


def tell(folder: Path, number: int, what: dict[str, Any]) -> None:
    new = folder / ".new"
    new.write_text(json.dumps(what))
    new.rename(folder / f"answer-{number}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("pattern")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        pattern = made(options.pattern, options.seed, options.mib)
    except (CudaError, AttributeError, ImportError, OSError) as error:
        tell(options.folder, 0, {"error": f"{type(error).__name__}: {error}"})
        return 1
    tell(options.folder, 0, {"bytes": pattern.bytes, "pid": os.getpid()})
    number = 1
    while True:
        asked = options.folder / f"ask-{number}"
        if not asked.exists():
            time.sleep(0.02)
            continue
        word = asked.read_text()
        try:
            said = answer(pattern, word)
        except CudaError as error:
            said = {"error": str(error)}
        tell(options.folder, number, said)
        if word == "end":
            return 0
        number += 1


if __name__ == "__main__":
    sys.exit(main())
