"""What is installed only where it is needed: the names are those of pyproject.toml."""

from __future__ import annotations

import sys


def install(*names: str) -> str:
    """The command, for hints; into the environment of the program that gives the hint."""
    return f"{sys.prefix}/bin/pip install 'slurm-reclaim[{','.join(names)}]'"
