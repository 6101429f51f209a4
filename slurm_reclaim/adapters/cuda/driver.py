"""The driver's checkpoint API, one action at a time, through a child that can be ended.

A child makes the calls (driver_child.py), and `cuInit` once for all that it is asked. One that does
not answer in time is killed, and what became of its last call is for the next child to look at: no
call is made a second time without that.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from slurm_reclaim.adapters.proc.tree import Process
from slurm_reclaim.errors import GpuUnavailable

log = logging.getLogger(__name__)

CHILD = Path(__file__).with_name("driver_child.py")
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/nonexistent"}
OK = "CUDA_SUCCESS"
# cuInit wakes every card of a node without persistence mode, some seconds each.
START_LONGEST = 120.0
LOOK_LONGEST = 20.0
_LINE_LONGEST = 1 << 16
_DIES_WITHIN = 5.0
_WHY = {
    "CUDA_ERROR_NOT_READY": "what was given to its GPU did not come to an end in time",
    "CUDA_ERROR_OUT_OF_MEMORY": "out of memory",
    "CUDA_ERROR_NOT_SUPPORTED": "not supported: managed memory, CUDA IPC or CUPTI are in use",
}
# Children that sleep in the driver and can't be killed; with so many no other is started.
_MOST_STUCK = 4

Pairs = Sequence[tuple[str, str]]
Note = Callable[[int], None]


class NoAnswer(GpuUnavailable):
    """A call did not come back in time; its child was killed. `pid`: whose call, 0 for cuInit."""

    def __init__(self, message: str, pid: int) -> None:
        super().__init__(message)
        self.pid = pid


class NoWay(GpuUnavailable):
    """No call can be made here. `missing`: for want of a program of ours or NVIDIA's."""

    def __init__(self, message: str, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


class CallFailed(GpuUnavailable):
    """The driver said no. `result` is its own name for why."""

    def __init__(self, action: str, process: Process, result: str) -> None:
        super().__init__(f"{action} of {process}: {result}")
        self.action = action
        self.result = result


def told(error: GpuUnavailable) -> str:
    why = _WHY.get(error.result, "") if isinstance(error, CallFailed) else ""
    return f"{error.message} ({why})" if why else error.message


def tools_missing(program: str) -> str:
    """Why nothing here can call the driver, "" where something can. At once: the driver is not
    asked."""
    try:
        if importlib.util.find_spec("cuda.bindings.driver") is not None:
            return ""
    except ImportError:
        pass
    if os.access(program, os.X_OK):
        return ""
    return f"neither the Python package cuda-bindings nor {program} is installed"


_stuck: list[subprocess.Popen[bytes]] = []


class Driver:
    """A conversation with one child; `with` ends it. `note` is told the PID of a child that may
    change something, and 0 when it is over, so that an agent started anew can wait for it."""

    def __init__(
        self,
        program: str,
        note: Note = lambda _: None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._note = note
        self._partial = b""
        self.way = ""
        _stuck[:] = [child for child in _stuck if child.poll() is None]
        if len(_stuck) >= _MOST_STUCK:
            raise NoWay(f"the CUDA driver hangs: {len(_stuck)} calls never came back", False)
        try:
            # -I: no directory and no variable of anybody's has a say in what is imported
            self._child = subprocess.Popen(
                [sys.executable, "-I", str(CHILD), program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd="/",
                env={**ENVIRONMENT, **(environment or {})},
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise NoWay(f"{CHILD.name} could not be started: {error}", False) from error
        try:
            note(self._child.pid)
            hello = self._hear("cuInit", 0, START_LONGEST)
        except BaseException:
            self.close()
            raise
        if "error" in hello:
            self.close()
            raise NoWay(str(hello["error"]), hello.get("kind") == "missing")
        self.way = str(hello.get("way", ""))

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """A child that is within no call ends by itself."""
        child = self._child
        for pipe in (child.stdin, child.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        try:
            child.wait(_DIES_WITHIN)
        except subprocess.TimeoutExpired:
            self._kill()
        self._note(0)

    # -- actions ------------------------------------------------------------------------------

    def why_none(self, process: Process) -> str:
        """Why this process has no CUDA state, in the driver's word; "" where it has. By its restore
        thread: a process may have a state without being one that can be saved
        (`cuda-checkpoint --launch-job`)."""
        result = str(self._ask("thread", process, LOOK_LONGEST)["result"])
        return "" if result == OK else result

    def has_state(self, process: Process) -> bool:
        return not self.why_none(process)

    def state(self, process: Process) -> str:
        """`running`, `locked`, `checkpointed`, `failed`..., or `gone`."""
        said = self._ask("state", process, LOOK_LONGEST)
        if said["result"] == "GONE":
            return "gone"
        if said["result"] != OK:
            raise CallFailed("state", process, said["result"])
        return str(said["value"])

    def lock(self, process: Process, timeout: float) -> None:
        """`timeout`: how long what was given to the cards may take to come to its end."""
        self._do("lock", process, timeout + LOOK_LONGEST, timeout_ms=max(1, round(timeout * 1000)))

    def checkpoint(self, process: Process, limit: float) -> None:
        self._do("checkpoint", process, limit)

    def restore(self, process: Process, limit: float, pairs: Pairs = ()) -> None:
        self._do("restore", process, limit, pairs=[list(pair) for pair in pairs])

    def unlock(self, process: Process) -> None:
        self._do("unlock", process, LOOK_LONGEST)

    def _do(self, action: str, process: Process, limit: float, **more: Any) -> None:
        began = time.monotonic()
        result = self._ask(action, process, limit, **more)["result"]
        took = time.monotonic() - began
        log.info("%s of %s (pid %d): %s in %.2f s", action, process, process.pid, result, took)
        if result != OK:
            raise CallFailed(action, process, result)

    # -- the child ----------------------------------------------------------------------------

    def _ask(self, action: str, process: Process, limit: float, **more: Any) -> dict[str, Any]:
        request = {"do": action, "pid": process.pid, "start": process.start, **more}
        child = self._child
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(request).encode() + b"\n")
        except (OSError, ValueError) as error:
            what = f"{action} of {process}: {CHILD.name} has ended"
            raise NoAnswer(what, process.pid) from error
        said = self._hear(f"{action} of {process}", process.pid, limit)
        if said.get("do") != action or said.get("pid") != process.pid or "result" not in said:
            self._kill()
            raise NoAnswer(f"{action} of {process}: {CHILD.name} talks nonsense", process.pid)
        return said

    def _hear(self, what: str, pid: int, limit: float) -> dict[str, Any]:
        child, deadline = self._child, time.monotonic() + limit
        assert child.stdout is not None
        poll = select.poll()
        poll.register(child.stdout.fileno(), select.POLLIN)
        while b"\n" not in self._partial:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                self._kill()
                raise NoAnswer(f"{what} did not come back within {limit:.0f} s", pid)
            piece = os.read(child.stdout.fileno(), _LINE_LONGEST)
            if not piece or len(self._partial) > _LINE_LONGEST:
                status = self._kill()
                raise NoAnswer(f"{what}: {CHILD.name} has ended ({status})", pid)
            self._partial += piece
        line, _, self._partial = self._partial.partition(b"\n")
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            self._kill()
            raise NoAnswer(f"{what}: {CHILD.name} talks nonsense", pid)
        return said

    def _kill(self) -> int | None:
        child = self._child
        if child.poll() is None:
            # With what it has started itself.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            try:
                child.wait(_DIES_WITHIN)
            except subprocess.TimeoutExpired:
                log.error("%s (pid %d) can't be ended: it sleeps in the driver", CHILD, child.pid)
                _stuck.append(child)
        return child.returncode
