"""What the daemons write to standard error: a line for each message, whatever names are in it."""

from __future__ import annotations

import logging

from slurm_reclaim.model.printable import escaped

_FORMAT = "%(levelname)s %(name)s: %(message)s"


class OneLine(logging.Formatter):
    """Files, processes and jobs have names that users choose: none may begin a line of its own, or
    drive the terminal of who reads the log."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escaped(super().formatMessage(record))


def begin(level: str) -> None:
    """`level` as `logging.level` has it."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
