"""Where the configuration is read from: the main file and `conf.d/*.toml` beside it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Key = tuple[str, ...]
MOST_BYTES = 4 << 20

_HEADER = re.compile(r"^\s*\[(\[)?\s*([\w\-.\s\"']+?)\s*\]?\]\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(r"^\s*([\w\-.\"']+)\s*=")


@dataclass
class Source:
    """One file: its table, and on which line each key stands."""

    path: str
    table: dict[str, Any]
    lines: dict[Key, int] = field(default_factory=dict)

    def where(self, key: Key) -> str:
        """`file:line`, or the file alone where the key is written in some unusual way."""
        line = self.lines.get(key)
        return self.path if line is None else f"{self.path}:{line}"


def files(path: str) -> list[str]:
    """`path` and the drop-ins beside it, in the order in which they are read."""
    return [path, *sorted(str(p) for p in (Path(path).parent / "conf.d").glob("*.toml"))]


def read(path: str) -> Source:
    """Raises OSError, and ValueError with a sentence where it is no TOML."""
    with open(path, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"longer than {MOST_BYTES >> 20} MiB, which is no configuration")
    try:
        text = data.decode()
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        # What comes of adding a section to the end of the sample, which has a header of each.
        twice = "; write below the header that is there, or into a file of its own in conf.d"
        cure = twice if "twice" in str(error) else ""
        raise ValueError(f"not valid TOML: {error}{cure}") from None
    except RecursionError:
        raise ValueError("not valid TOML: nested too deep") from None
    return Source(path, table, line_numbers(text))


def line_numbers(text: str) -> dict[Key, int]:
    """Key path -> line. tomllib does not tell; this reads the two ways in which people write keys
    (`key = ` below a header, dotted keys). Entries of a list of tables carry their number from 0:
    ("adopt", "1", "user")."""
    found: dict[Key, int] = {}
    table: Key = ()
    counts: dict[Key, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _split(header[2])
            if header[1]:
                counts[table] = counts.get(table, -1) + 1
                table = (*table, str(counts[table]))
            found.setdefault(table, number)
        elif assignment := _ASSIGNMENT.match(line):
            found.setdefault(table + _split(assignment[1]), number)
    return found


def _split(dotted: str) -> Key:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
