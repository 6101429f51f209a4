"""Everything the command line writes: text for people, JSON for programs. Nobody else prints.

Results go to standard output, everything else (progress, errors, hints) to standard error. Where
standard output is no terminal there are no colours and nothing is shortened or wrapped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from slurm_reclaim.errors import ReclaimError

Row = Sequence[str]

# The colour of a word in tables, on terminals only.
_STYLES = {
    "ACTIVE": "green", "HIBERNATED": "blue", "FAILED": "red", "WARNED": "yellow",
    "HIBERNATING": "cyan", "REQUEUING": "cyan", "QUEUED": "cyan", "RESTORING": "cyan",
    "ok": "green", "failed": "bold red", "warning": "yellow", "not checked": "dim",
}  # fmt: skip

# Names come from users: one with an escape sequence must not drive an operator's terminal.
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


class Output:
    def __init__(self, *, json: bool = False) -> None:
        self.json = json

    def value(self, value: Any) -> None:
        """JSON for programs."""
        _write(json.dumps(value, indent=2, ensure_ascii=False))

    def text(self, text: str) -> None:
        _write(text)

    def table(self, header: Row, rows: Sequence[Row], *, empty: str) -> None:
        """Columns under a header; `empty` is said instead when there is nothing to show."""
        # A cell of several lines would take those of other rows apart.
        rows = [[" ".join(cell.split("\n")) for cell in row] for row in rows]
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

    def error(self, error: ReclaimError) -> None:
        """One message, each line with our name in front, then the hint. Programs get it on
        standard output, too."""
        if self.json:
            self.value(
                {
                    "error": type(error).__name__,
                    "message": error.message,
                    "hint": error.hint,
                    "exit_code": error.exit_code,
                }
            )
        for line in error.message.splitlines() or [type(error).__name__]:
            self.say(f"reclaim: {line}")
        for line in error.hint.splitlines():
            self.say(f"  hint: {line}")


def columns(rows: Sequence[Row]) -> list[str]:
    """Rows with their cells below each other; the last column is as wide as it likes."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _rich_table(header: Row, rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in header[:-1]:
        table.add_column(name, no_wrap=True, overflow="ignore")
    # Only the last column, a sentence, gives way on a narrow terminal: by wrapping.
    table.add_column(header[-1], overflow="fold")
    for row in rows:
        table.add_row(
            *(Text(cell.translate(_CONTROLS), style=_STYLES.get(cell, "")) for cell in row)
        )
    Console().print(table)


def _write(text: str, *, error: bool = False) -> None:
    stream = sys.stderr if error else sys.stdout
    text = text.translate(_CONTROLS)
    # A name from elsewhere must not end the command in a terminal that can't show it.
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
