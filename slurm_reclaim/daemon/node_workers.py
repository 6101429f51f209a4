"""The threads in which sessions are measured: kept from pass to pass, since one that waits costs
half of what a new one does; and left alone where what they measure hangs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Turn:
    """What one thread does in one pass: `work` on each item until none is left. One that is `late`
    stops after the item that it is at."""

    def __init__(
        self,
        items: deque[T],
        work: Callable[[T, Turn], None],
        ended: Callable[[Turn], None],
    ) -> None:
        self.late = self.done = False
        self._items, self._work, self._ended = items, work, ended
        self._over = threading.Event()

    def wait(self, seconds: float) -> None:
        """Until it has ended, at most so long."""
        self._over.wait(seconds)

    def take(self) -> None:
        try:
            while not self.late:
                try:
                    item = self._items.popleft()
                except IndexError:
                    break
                self._work(item, self)
        finally:
            self._ended(self)
            self._over.set()


class Workers:
    """Used by one thread."""

    def __init__(self) -> None:
        self._known: list[_Worker] = []

    def __del__(self) -> None:
        for worker in self._known:
            worker.turns.put(None)

    def give(self, turn: Turn) -> None:
        """To a thread that has nothing to do, or a new one. One whose turn was late ends with it:
        nobody knows when that is."""
        self._known = [worker for worker in self._known if not worker.turn.late]
        for worker in self._known:
            if worker.turn.done:
                worker.turn = turn
                break
        else:
            worker = _Worker(turn)
            self._known.append(worker)
            worker.start()
        worker.turns.put(turn)


class _Worker(threading.Thread):
    """`turn`: the last it was given."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(name="meters", daemon=True)
        self.turn = turn
        self.turns: SimpleQueue[Turn | None] = SimpleQueue()

    def run(self) -> None:
        while (turn := self.turns.get()) is not None:
            turn.take()
            if turn.late:
                return
