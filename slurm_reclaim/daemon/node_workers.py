"""The threads in which sessions are measured: kept from pass to pass, since one that waits costs
half of what a new one does; and left alone where what they measure hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class Turn:
    """What one thread does in one pass. One that is `late` gives up as soon as it can."""

    def __init__(self) -> None:
        self.late = self.done = False
        self.over = threading.Event()


class Workers:
    """Used by one thread."""

    def __init__(self) -> None:
        self._known: list[_Worker] = []

    def __del__(self) -> None:
        for worker in self._known:
            worker.work.put(None)

    def give(self, turn: Turn, work: Callable[[], None]) -> None:
        """To a thread that has nothing to do, or a new one. One whose turn was late ends with it:
        nobody knows when that is."""
        self._known = [worker for worker in self._known if not worker.turn.late]
        worker = next((each for each in self._known if each.turn.done), None)
        if worker is None:
            worker = _Worker()
            self._known.append(worker)
            worker.start()
        worker.turn = turn
        worker.work.put(work)


class _Worker(threading.Thread):
    """`turn`: the last it was given."""

    turn: Turn

    def __init__(self) -> None:
        super().__init__(name="meters", daemon=True)
        self.work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run(self) -> None:
        while self._one():
            pass

    def _one(self) -> bool:
        """Whether there may be more: in a frame of its own, so that who waits holds nothing."""
        work = self.work.get()
        if work is None:
            return False
        work()
        return not self.turn.late
