"""The mapped file between the harness and a program under test (faults.h has the same layout)."""

from __future__ import annotations

import enum
import mmap
import struct
from pathlib import Path

RECORDS, RECORD_LENGTH = 4096, 120
HEADER = struct.Struct("<8I2i6I")
SIZE = HEADER.size + RECORDS * RECORD_LENGTH


class Kind(enum.IntFlag):
    FILE = 1
    REMOTE = 2
    LOCAL = 4
    EXEC = 8
    TRACE = 16
    HEAR = 32
    PIPE = 64
    ALL = 127


class Action(enum.IntEnum):
    COUNT = 0
    KILL = 1
    FAIL = 2
    LOSE = 3
    STOP = 4


class Control:
    """Of one program on one node; its processes, now and after a restart, share one count."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(SIZE))
        path.chmod(0o666)  # CRIU is the owner's
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)

    def _put(self, index: int, value: int) -> None:
        struct.pack_into("<I", self._map, 4 * index, value)

    def _get(self, index: int) -> int:
        return int(struct.unpack_from("<I", self._map, 4 * index)[0])

    def arm(
        self,
        action: Action = Action.COUNT,
        target: int = 0,
        kinds: Kind = Kind.ALL,
        length: int = 1,
        error: int = 0,
    ) -> None:
        """From now on calls are counted, and the `target`-th of `kinds` is hit, `length` of them
        in a row (0: all that follow)."""
        self._put(0, 0)
        for index, value in enumerate((kinds, target, length, action, error, 0, 0, 0)):
            self._put(1 + index, value)
        self._put(0, 1)

    def disarm(self) -> None:
        self._put(0, 0)

    @property
    def count(self) -> int:
        return self._get(6)

    @property
    def hits(self) -> int:
        return self._get(7)

    @property
    def pid(self) -> int:
        """Of the last process that was hit, as it sees itself."""
        return self._get(8)

    @property
    def skew(self) -> int:
        """Seconds by which the wall clock of the program is ahead, whether armed or not."""
        return int(struct.unpack_from("<i", self._map, 36)[0])

    @skew.setter
    def skew(self, seconds: int) -> None:
        struct.pack_into("<i", self._map, 36, seconds)

    def take(self, kind: Kind, what: str, pid: int) -> Action | None:
        """What a program in Python asks before a call of its own: what is to happen to it. Not to
        be called by two at once."""
        if not self._get(0) or not self._get(1) & kind:
            return None
        number = self._get(6) + 1
        self._put(6, number)
        if number <= RECORDS:
            letter = chr(ord("A") + kind.bit_length() - 1)
            raw = (letter + what).encode()[: RECORD_LENGTH - 1]
            at = HEADER.size + (number - 1) * RECORD_LENGTH
            self._map[at : at + RECORD_LENGTH] = raw.ljust(RECORD_LENGTH, b"\0")
        target, length, action = self._get(2), self._get(3), Action(self._get(4))
        if action is Action.COUNT or number < target or (length and number >= target + length):
            return None
        self._put(8, pid)
        self._put(7, self._get(7) + 1)
        return action

    @property
    def error(self) -> int:
        return self._get(5)

    def call(self, number: int) -> str:
        """What the `number`-th call was, from 1: its kind as a letter (A: 1), its name, and what
        it was made on."""
        if not 1 <= number <= RECORDS:
            return ""
        at = HEADER.size + (number - 1) * RECORD_LENGTH
        raw = self._map[at : at + RECORD_LENGTH]
        return raw.split(b"\0", 1)[0].decode(errors="replace")

    def calls(self) -> list[tuple[Kind, str]]:
        said = [self.call(n) for n in range(1, min(self.count, RECORDS) + 1)]
        return [(Kind(1 << (ord(text[0]) - ord("A"))), text[1:]) for text in said if text]
