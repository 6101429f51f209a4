"""Everything the command line writes: text for people, JSON for programs. Nobody else prints.

Results go to standard output, everything else (progress, errors, hints) to standard error. Where
standard output is no terminal there are no colours and nothing is shortened or wrapped.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from slurm_reclaim.errors import OperationFailed, ReclaimError

Row = Sequence[str]

LEAST_SENTENCE = 16  # columns of a terminal

# The colour of a word in tables, on terminals only.
_STYLES = {
    "ACTIVE": "green", "HIBERNATED": "blue", "FAILED": "red", "WARNED": "yellow",
    "HIBERNATING": "cyan", "REQUEUING": "cyan", "QUEUED": "cyan", "RESTORING": "cyan",
    "ok": "green", "failed": "bold red", "warning": "yellow", "not checked": "dim",
}  # fmt: skip


class Output:
    def __init__(self, *, json: bool = False) -> None:
        self.json = json

    def value(self, value: Any) -> None:
        """JSON for programs: nothing is lost of a name that can't be shown."""
        plain = json.dumps(value, indent=2, ensure_ascii=False)
        lines = (line if _can_be_shown(line) else _escaped(line) for line in plain.split("\n"))
        _put("\n".join(lines) + "\n")

    def text(self, text: str) -> None:
        _write(text)

    def table(self, header: Row, rows: Sequence[Row], *, empty: str) -> None:
        """Columns under a header; `empty` is said instead when there is nothing to show."""
        # A cell of several lines would take those of other rows apart, and so would a tab.
        rows = [[" ".join(re.split(r"[\n\t]", cell)) for cell in row] for row in rows]
        if not rows:
            self.say(empty)
        elif sys.stdout.isatty():
            _rich_table(header, rows)
        else:
            for line in columns([header, *rows]):
                _write(line)

    def record(self, pairs: Sequence[tuple[str, str]]) -> None:
        """One thing, a line per property; properties without value are left out."""
        shown = [(key, value) for key, value in pairs if value]
        width = max((len(key) for key, _ in shown), default=0)
        for key, value in shown:
            indent = "\n" + " " * (width + 2)
            _write(f"{key:<{width}}  {value.replace(chr(10), indent)}")

    def say(self, text: str) -> None:
        """Something beside the result."""
        _write(text, error=True)

    def flush(self) -> None:
        """Raises BrokenPipeError, OperationFailed."""
        with _written():
            sys.stdout.flush()

    def error(self, error: ReclaimError) -> None:
        """One message, each line with our name in front, then the hint. Programs get it on
        standard output, too."""
        if self.json:
            name = type(error).__name__
            self._error_value(name, error.message, error.hint, error.exit_code)
        with suppress(OSError, OperationFailed):
            for line in error.message.splitlines() or [type(error).__name__]:
                self.say(f"reclaim: {line}")
            for line in error.hint.splitlines():
                self.say(f"  hint: {line}")

    def usage_error(self, message: str, exit_code: int) -> None:
        """For programs; people are told by click."""
        self._error_value("UsageError", message, "", exit_code)

    def _error_value(self, name: str, message: str, hint: str, exit_code: int) -> None:
        with suppress(OSError, OperationFailed):
            self.value({"error": name, "message": message, "hint": hint, "exit_code": exit_code})
            self.flush()


def columns(rows: Sequence[Row]) -> list[str]:
    """Rows with their cells below each other; the last column is as wide as it likes."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _rich_table(header: Row, rows: Sequence[Row]) -> None:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in header[:-1]:
        table.add_column(name, no_wrap=True, overflow="ignore")
    # Only the last column, a sentence, gives way on a narrow terminal: by wrapping.
    table.add_column(header[-1], overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(cell, sys.stdout), style=_STYLES.get(cell, "")) for cell in row))
    console = Console()
    # Rather lines that the terminal breaks than job ids that are cut to other job ids.
    least = sum(
        max(cell_len(row[i]) for row in [header, *rows]) + 2 for i in range(len(header) - 1)
    )
    console.width = max(console.width, least + max(cell_len(header[-1]), LEAST_SENTENCE))
    console.print(table)


def shown(text: str, stream: TextIO) -> str:
    """Names come from users: one with an escape sequence must not drive an operator's terminal, nor
    one with a direction mark turn the rest of the line round, nor one that the terminal can't show
    end the command."""
    if not text.isprintable():
        text = "".join(c if c in "\n\t" or c.isprintable() else _mark(c) for c in text)
    encoding = _encoding(stream)
    return text.encode(encoding, "replace").decode(encoding)


def _mark(character: str) -> str:
    return " " if character.isspace() else "\ufffd"


def _write(text: str, *, error: bool = False) -> None:
    _put(shown(text, sys.stderr if error else sys.stdout) + "\n", error=error)


def _put(text: str, *, error: bool = False) -> None:
    """Raises BrokenPipeError, OperationFailed."""
    with _written():
        (sys.stderr if error else sys.stdout).write(text)


@contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise OperationFailed(f"the output can't be written: {problem.strerror}") from None


def _encoding(stream: TextIO) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def _can_be_shown(line: str) -> bool:
    if not line.isprintable():
        return False
    try:
        line.encode(_encoding(sys.stdout))
    except UnicodeEncodeError:
        return False
    return True


def _escaped(line: str) -> str:
    """Of JSON: outside of strings there is nothing that would be written otherwise."""
    return "".join(c if c.isascii() and c.isprintable() else json.dumps(c)[1:-1] for c in line)
