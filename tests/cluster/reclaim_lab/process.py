"""Processes by pid and start time, so that a pid used again is never taken for the old one."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    pid: int
    start: int
    """Clock ticks from the boot of the machine."""
    boot: str
    """The machine's boot id."""

    @classmethod
    def of(cls, pid: int) -> Process | None:
        start = start_ticks(Path(f"/proc/{pid}/stat"))
        return None if start is None else cls(pid, start, _boot_id())

    def alive(self) -> bool:
        return self.boot == _boot_id() and start_ticks(Path(f"/proc/{self.pid}/stat")) == self.start

    def kill(self, patience: float = 20.0) -> bool:
        """SIGKILL; true once it is gone, for the init of a PID namespace with all in it."""
        if not self.alive():
            return True
        os.kill(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + patience
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(stat: Path) -> int | None:
    """None for a process that is gone or only waits for its parent to take note."""
    try:
        text = stat.read_text(errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])
