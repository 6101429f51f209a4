"""plugstack.conf: the plugins that slurmd, slurmstepd and sbatch load (spank(8))."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

PLUGIN = "reclaim.so"
# What the plugin and the agent run, in a directory of their own.
PROGRAMS = ("reclaim-init", "reclaim-relay", "reclaim-exec")
_DEPTH = 8  # of includes


class Files(Protocol):
    def read(self, path: str) -> str:
        """Raises OSError."""
        ...

    def glob(self, pattern: str) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class Line:
    """One plugin line of plugstack.conf."""

    file: str
    flag: str
    path: str
    arguments: tuple[str, ...]


def ours(files: Files, path: str) -> list[Line]:
    """The lines that name our plugin."""
    return [line for line in lines(files, path) if posixpath.basename(line.path) == PLUGIN]


def lines(files: Files, path: str, depth: int = 0) -> list[Line]:
    """Every plugin line, with `include` followed as Slurm does (shell patterns, relative to the
    directory of the including file)."""
    try:
        text = files.read(path)
    except OSError:
        return []
    found: list[Line] = []
    for raw in text.splitlines():
        words = raw.partition("#")[0].split()
        if len(words) < 2:
            continue
        if words[0] == "include" and depth < _DEPTH:
            pattern = posixpath.join(posixpath.dirname(path), words[1])
            for name in files.glob(pattern):
                found += lines(files, name, depth + 1)
        elif words[0] in ("optional", "required"):
            found.append(Line(path, words[0], words[1], tuple(words[2:])))
    return found
