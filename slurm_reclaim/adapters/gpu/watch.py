"""The agent's one NVML: keeps `nvml_child` alive while somebody asks, and takes its rounds.

Nothing here waits for NVML longer than `PATIENCE`, and never twice for a child that hangs: a child
that is silent for `SILENT` seconds is killed, and as long as it can't be (it sleeps in the driver)
no other is started, so that none pile up. What is missing meanwhile is for the readers to call
unknown.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

CHILD = Path(__file__).with_name("nvml_child.py")
PATIENCE = 1.5
FRESH = 1.0
SILENT = 30.0
# NVML's start on a node without persistence mode wakes every card.
START_LONGEST = 60.0
BACK_OFF = 30.0
KEPT = 600.0
MOST_ROUNDS = 1200
LINE_LONGEST = 1 << 20
PIPE = 1 << 20

STARTING = "NVML is starting"

Round = Mapping[str, Any]


class NvmlWatch:
    """`rounds` may be called from several threads. Times of rounds are Unix seconds."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = {"PATH": "/usr/bin:/bin", "LANG": "C", **(environment or {})}
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._heard = 0.0  # monotonic: the last line, or the start
        self._waited = 0.0  # what `_heard` was when an answer was last waited for
        self._rounds: deque[Round] = deque(maxlen=MOST_ROUNDS)
        self._partial = b""
        self._trouble = ""
        self._start_after = 0.0

    def rounds(self, after: float) -> tuple[list[Round], str]:
        """The rounds that ended after `after`, oldest first, one of just now if NVML answers; and
        why there may be none ("")."""
        with self._lock:
            self._keep_alive()
            self._take(0.0)
            child = self._child
            # One wait for each silence, not one for each session.
            if child is not None and self._waited != self._heard and not self._fresh():
                self._nudge(child)
                self._waited = self._heard
                deadline = time.monotonic() + PATIENCE
                while self._child is not None and not self._fresh():
                    left = deadline - time.monotonic()
                    if left <= 0:
                        break
                    self._take(left)
            found = [r for r in self._rounds if r["at"] > after]
            return found, self._why()

    def latest(self) -> Round | None:
        """The newest round, where somebody has asked for one; starts nothing and waits for
        nothing."""
        with self._lock:
            if self._child is None:
                return None
            self._take(0.0)
            return self._rounds[-1] if self._rounds else None

    def ask(self) -> None:
        """For a round at once, which `rounds` will have soon; waits for nothing."""
        with self._lock:
            if self._child is not None:
                self._nudge(self._child)

    def close(self) -> None:
        with self._lock:
            self._kill("it is not wanted any more")
            self._start_after = 0.0

    # -- the child ----------------------------------------------------------------------------

    def _keep_alive(self) -> None:
        child = self._child
        if child is not None and child.poll() is not None:
            self._take(0.0)
            self._gone()
        elif child is not None and not self._responsive():
            self._kill(f"NVML has not answered for {time.monotonic() - self._heard:.0f} s")
        if self._child is None and time.monotonic() >= self._start_after:
            self._start()

    def _responsive(self) -> bool:
        allowed = SILENT if self._rounds else START_LONGEST
        return time.monotonic() - self._heard < allowed

    def _start(self) -> None:
        self._start_after = time.monotonic() + BACK_OFF
        self._heard, self._partial = time.monotonic(), b""
        try:
            # -I: no directory and no variable of anybody's has a say in what is imported
            child = subprocess.Popen(
                [sys.executable, "-I", str(CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd="/",
                env=dict(self._environment),
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._trouble = f"NVML's reader could not be started: {error}"
            return
        assert child.stdin is not None
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)
        os.set_blocking(child.stdin.fileno(), False)
        try:
            fcntl.fcntl(child.stdout.fileno(), 1031, PIPE)  # F_SETPIPE_SZ
        except OSError:
            log.debug("the pipe from NVML's reader keeps its size")
        self._child = child

    def _kill(self, why: str) -> None:
        child = self._child
        if child is None:
            return
        if why != self._trouble:
            log.warning("NVML's reader (pid %d) is ended: %s", child.pid, why)
        self._trouble = why
        child.kill()
        try:
            child.wait(0.2)
        except subprocess.TimeoutExpired:
            self._trouble = f"{why}, and its reader can't be ended"
            return
        self._gone()

    def _gone(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        self._rounds.clear()
        if not self._trouble and child.returncode:
            self._trouble = f"NVML's reader ended ({child.returncode})"
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()

    # -- its words ----------------------------------------------------------------------------

    def _fresh(self) -> bool:
        return bool(self._rounds) and abs(time.time() - self._rounds[-1]["at"]) < FRESH

    def _nudge(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None
        try:
            os.write(child.stdin.fileno(), b"\n")
        except OSError:
            return  # full: it has been asked; closed: its end is seen at the next call

    def _take(self, seconds: float) -> None:
        """Everything that lies in the pipe, waiting up to `seconds` for the first of it."""
        child = self._child
        if child is None or child.stdout is None:
            return
        pipe = child.stdout.fileno()
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return
        for _ in range(64):
            try:
                piece = os.read(pipe, 1 << 16)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            if not piece:
                child.poll()
                if child.returncode is None:
                    try:
                        child.wait(0.2)
                    except subprocess.TimeoutExpired:
                        child.kill()
                self._gone_if_over(child)
                return
            self._partial += piece
            self._lines()

    def _gone_if_over(self, child: subprocess.Popen[bytes]) -> None:
        if child.poll() is not None:
            self._gone()

    def _lines(self) -> None:
        *lines, self._partial = self._partial.split(b"\n")
        if len(self._partial) > LINE_LONGEST:
            self._kill("NVML's reader talks nonsense")
            return
        for line in lines:
            try:
                said = json.loads(line)
                self._trouble = said.get("error", "")
                if not self._trouble:
                    said["at"] = float(said["at"])
                    if self._rounds and said["at"] < self._rounds[-1]["at"]:
                        self._rounds.clear()  # the clock was put back
                    self._rounds.append(said)
            except (ValueError, AttributeError, KeyError, TypeError):
                # the driver's library, too, may write to what is the program's output
                self._kill("NVML's reader talks nonsense")
                return
            self._heard = time.monotonic()
        oldest = time.time() - KEPT
        while self._rounds and self._rounds[0]["at"] < oldest:
            self._rounds.popleft()

    def _why(self) -> str:
        if self._trouble:
            return self._trouble
        if self._rounds:
            silent = time.time() - self._rounds[-1]["at"]
            return f"NVML has not answered for {silent:.0f} s"
        return STARTING


@cache
def nvml() -> NvmlWatch:
    """The one that every session's meter shares."""
    return NvmlWatch()
