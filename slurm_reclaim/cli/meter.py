"""Progress of long work on standard error: a moving bar on a terminal, else a line per step."""

from __future__ import annotations

import sys
from types import TracebackType

from slurm_reclaim.cli import phrases
from slurm_reclaim.cli.output import Output, shown
from slurm_reclaim.model.session import Session


class Pace:
    """Seconds left, from how fast the same step went so far."""

    def __init__(self) -> None:
        self._step = ""
        self._start = (0.0, 0)

    def left(self, session: Session) -> float | None:
        """None while there is nothing to tell it by."""
        progress = session.progress
        if progress.step != self._step or progress.done < self._start[1]:
            self._step = progress.step
            self._start = (progress.at, progress.done)
            return None
        seconds, done = progress.at - self._start[0], progress.done - self._start[1]
        if not progress.total or done <= 0 or seconds <= 0:
            return None
        return max(0.0, (progress.total - progress.done) * seconds / done)


class Meter:
    """Use as a context: whatever it draws is gone or finished at the end."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._pace = Pace()
        self._said = ""
        self._moving = sys.stderr.isatty()
        self._drawn = 0

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._erase()

    def show(self, session: Session) -> None:
        left = self._pace.left(session)
        if self._moving:
            self._draw(self._line(session, left))
        elif not self._output.json:
            step = f"{session.state} {session.progress.step}".strip()
            if step != self._said:
                self._said = step
                self._output.say(self._line(session, None))

    def _line(self, session: Session, left: float | None) -> str:
        what = phrases.progress(session.progress, left) or session.reason
        return f"job {session.job} {session.state}: {what}"

    def _draw(self, line: str) -> None:
        # One line that is written over; longer than the terminal it could not be taken back.
        from shutil import get_terminal_size

        line = shown(line, sys.stderr)[: max(20, get_terminal_size().columns - 1)]
        sys.stderr.write("\r" + line + " " * max(0, self._drawn - len(line)))
        sys.stderr.flush()
        self._drawn = len(line)

    def _erase(self) -> None:
        if self._drawn:
            sys.stderr.write("\r" + " " * self._drawn + "\r")
            sys.stderr.flush()
            self._drawn = 0
