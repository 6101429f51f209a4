#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A CUDA session for tests: device memory whose contents are known, read back again and again.

    cuda-session [--mib N] [--seed N] [--out FILE] [--interval S] [--count N] [--busy]
                 [--managed] [--fork-child] [--two [--late]] [--exec]

Each round writes a line `COUNT PID NODE UUID ok|bad|ERROR` for every card. As a module, for a
notebook or a batch script: `session = cuda_session.Session(mib=64); session.verify()`. It speaks
to the driver by ctypes only.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import signal
import sys
import threading
import time

MIB = 1 << 20
MANAGED_GLOBAL = 1


class CudaError(Exception):
    """`code` is CUDA's, `name` like CUDA_ERROR_OUT_OF_MEMORY."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.code = code
        self.name = name


class Driver:
    """The calls, with their codes made exceptions."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        self._library = ctypes.CDLL(library)

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            said = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(said))
            raise CudaError(name, code, (said.value or b"?").decode())


class Card:
    """`bytes` of memory on one device, filled with what `seed` gives."""

    def __init__(self, driver: Driver, device: int, size: int, seed: str, managed: bool) -> None:
        self._driver = driver
        self._device = device
        self._size = size
        self._digest = ""
        self._context = ctypes.c_void_p()
        self._address = ctypes.c_uint64()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._enter()
        at, length = ctypes.byref(self._address), ctypes.c_size_t(size)
        if managed:
            driver.call("cuMemAllocManaged", at, length, MANAGED_GLOBAL)
        else:
            driver.call("cuMemAlloc_v2", at, length)
        self.fill(seed)

    def _enter(self) -> None:
        self._driver.call("cuCtxSetCurrent", self._context)

    def fill(self, seed: str) -> None:
        """New contents; of them only a digest is kept on the host."""
        contents = hashlib.shake_128(seed.encode()).digest(self._size)
        self._digest = hashlib.sha256(contents).hexdigest()
        self._enter()
        self._driver.call("cuMemcpyHtoD_v2", self._address, contents, ctypes.c_size_t(self._size))

    def verify(self) -> bool:
        back = ctypes.create_string_buffer(self._size)
        self._enter()
        self._driver.call("cuMemcpyDtoH_v2", back, self._address, ctypes.c_size_t(self._size))
        return hashlib.sha256(back).hexdigest() == self._digest

    def uuid(self) -> str:
        raw = (ctypes.c_ubyte * 16)()
        self._driver.call("cuDeviceGetUuid_v2", raw, self._device)
        text = bytes(raw).hex()
        parts = text[:8], text[8:12], text[12:16], text[16:20], text[20:]
        return "GPU-" + "-".join(parts)

    def synchronize(self) -> None:
        self._enter()
        self._driver.call("cuCtxSynchronize")


class Session:
    """`mib` MiB on every card that CUDA shows."""

    def __init__(self, mib: int = 16, seed: int = 1, managed: bool = False) -> None:
        self.driver = Driver()
        self.count = 0
        self.driver.call("cuInit", 0)
        cards = ctypes.c_int()
        self.driver.call("cuDeviceGetCount", ctypes.byref(cards))
        self.cards = [
            Card(self.driver, device, mib * MIB, f"{seed}/{device}", managed)
            for device in range(cards.value)
        ]

    def verify(self) -> bool:
        """Whether all memory still holds what was put there. Raises CudaError."""
        return all(card.verify() for card in self.cards)

    def lines(self) -> list[str]:
        """One round: a line for each card."""
        self.count += 1
        return [self._line(card) for card in self.cards]

    def _line(self, card: Card) -> str:
        try:
            said = "ok" if card.verify() else "bad"
            uuid = card.uuid()
        except CudaError as error:
            said, uuid = error.name, "-"
        return f"{self.count} {os.getpid()} {os.uname().nodename} {uuid} {said}"


def write(path: str, lines: list[str]) -> None:
    """Opened for each round, so that nothing but the work is held in between."""
    text = "".join(line + "\n" for line in lines)
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with open(path, "a") as out:
        out.write(text)


def wait_in_child() -> None:
    """A child that has its parent's open files and makes no CUDA call."""
    if os.fork() == 0:
        while True:
            signal.pause()


def become_another() -> None:
    """At SIGUSR1. The PID stays, the CUDA state does not."""
    signal.sigwait({signal.SIGUSR1})
    os.execvp("sleep", ["sleep", "600"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="cuda-session", description=__doc__)
    parser.add_argument("--mib", type=int, default=16, help="on each card")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="-", help="file that lines are appended to")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between rounds")
    parser.add_argument("--count", type=int, default=0, help="rounds, 0: without end")
    parser.add_argument("--busy", action="store_true", help="call cuCtxSynchronize each round")
    parser.add_argument("--managed", action="store_true", help="take managed memory")
    parser.add_argument("--fork-child", action="store_true", help="fork a child after cuInit")
    parser.add_argument("--exec", action="store_true", help="become `sleep` at SIGUSR1")
    parser.add_argument("--late", action="store_true", help="the second of two at SIGUSR1 only")
    parser.add_argument("--two", action="store_true", help="be two CUDA processes")
    options = parser.parse_args()
    if options.exec or options.late:
        # In a thread that waits, since calls of a locked process do: an exec from any will do.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    if options.two and os.fork() == 0:
        options.seed += 1000
        if options.late:
            signal.sigwait({signal.SIGUSR1})
    if options.exec:
        threading.Thread(target=become_another, daemon=True).start()
    session = Session(options.mib, options.seed, options.managed)
    if options.fork_child:
        wait_in_child()
    while options.count == 0 or session.count < options.count:
        write(options.out, session.lines())
        if options.busy:
            for card in session.cards:
                card.synchronize()
        time.sleep(options.interval)
    return 0


if __name__ == "__main__":
    sys.exit(main())
