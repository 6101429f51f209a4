"""Rows of squeue and sinfo, cut apart so that nothing a user typed can forge a field.

Job names and comments may hold any byte, newlines and our separators of yesterday included. So the
separators are made anew for every query, and no one can know them beforehand.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from slurm_reclaim.errors import SchedulerUnavailable


class Cutter:
    """One query's field list for `-O` and the knife for its answer."""

    def __init__(self, fields: Sequence[str], *, token: str = "") -> None:
        # squeue takes digits after the colon for a width and a comma for the next field.
        token = token or secrets.token_hex(12)
        self._next, self._end = f"|{token}|", f"|{token}/|"
        self._fields = tuple(fields)

    @property
    def format(self) -> str:
        *first, last = self._fields
        return ",".join([*(f"{field}:{self._next}" for field in first), f"{last}:{self._end}"])

    def rows(self, text: str) -> Iterator[dict[str, str]]:
        """The fields of every row. Raises SchedulerUnavailable for an answer of another shape:
        half an answer must not look like jobs that are gone."""
        *rows, rest = text.split(f"{self._end}\n")
        if rest.strip():
            raise SchedulerUnavailable(f"Slurm's answer ends in the middle: {rest[-80:]!r}")
        for row in rows:
            values = row.split(self._next)
            if len(values) != len(self._fields):
                raise SchedulerUnavailable(f"a row of Slurm's answer can't be read: {row[:200]!r}")
            yield dict(zip(self._fields, values, strict=True))
