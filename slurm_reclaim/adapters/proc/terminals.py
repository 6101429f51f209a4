"""Terminals of a session: when somebody last typed."""

from __future__ import annotations

import os

from slurm_reclaim.adapters.proc.tree import PROC


def last_input(init: int) -> float:
    """Unix seconds of the last input read on any terminal of the session's private devpts; 0 if
    there is none. The kernel keeps these times to 8 seconds (tty_update_time)."""
    last = 0.0
    base = PROC / str(init) / "root/dev/pts"
    try:
        names = os.listdir(base)
    except OSError:
        return 0.0
    for name in names:
        if name.isdigit():
            try:
                last = max(last, os.stat(base / name).st_atime)
            except OSError:
                continue
    return last
