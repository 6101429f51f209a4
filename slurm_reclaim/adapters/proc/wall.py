"""A word to whoever sits at a session's terminals, as wall(1) has it."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress

from slurm_reclaim.adapters.proc import terminals
from slurm_reclaim.adapters.proc.tree import PROC
from slurm_reclaim.model.printable import lines

MOST_TEXT = 4096  # characters
PATIENCE = 0.3  # seconds for one terminal whose buffer is full
AT_MOST = 5.0  # seconds for all of them


def write(init: int, text: str) -> int:
    """Write `text` to every terminal at which a process of the session works; how many took the
    whole of it. One that is stopped (Ctrl-S), full, locked or hung up has not. It is no input: the
    time of the last one stays. Takes AT_MOST seconds and raises nothing."""
    content = _content(text)
    deadline = time.monotonic() + AT_MOST
    folder = _devpts(init)
    if folder is None:
        return 0
    count = 0
    try:
        for number in sorted(terminals.in_use(init)):
            left = deadline - time.monotonic()
            with suppress(OSError):
                count += left > 0 and _write_one(folder, number, content, min(left, PATIENCE))
    finally:
        os.close(folder)
    return count


def _content(text: str) -> bytes:
    """Cleaned here, too: what reaches a terminal must not depend on who sent the order. "\\r\\n"
    also where an editor has the terminal in raw mode."""
    shown = lines(text[:MOST_TEXT].replace("\r", ""))
    return shown.replace("\n", "\r\n").encode("utf-8", "replace")


def _devpts(init: int) -> int | None:
    """Descriptor of the directory of the session's terminals; None where it has none of its own:
    the node's devpts shows other people's."""
    try:
        path = PROC / str(init) / "root/dev/pts"
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        if os.stat("/dev/pts").st_dev != os.fstat(folder).st_dev:
            return folder
    os.close(folder)
    return None


def _write_one(folder: int, number: int, content: bytes, patience: float) -> bool:
    """Raises OSError."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
    terminal = os.open(str(number), flags, dir_fd=folder)
    try:
        if not stat.S_ISCHR(os.fstat(terminal).st_mode):
            return False
        deadline = time.monotonic() + patience
        while content:
            try:
                content = content[os.write(terminal, content) :]
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.02)
        return True
    finally:
        os.close(terminal)
