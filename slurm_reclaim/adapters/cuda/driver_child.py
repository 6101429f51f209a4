"""Makes calls of the CUDA driver's checkpoint API, one for each line it is given.

A program of its own, started by `driver` with this file's path and an environment of its own: a
call can hang for good or crash in the driver's library, and must not take the agent along. It
imports nothing of ours. `cuInit` is called once, the state of the calling process is not otherwise
touched: it has no context and no memory on any card.

    stdin   {"do": ..., "pid": n, "start": ticks, ...}; the end of it ends the program, but
            never within a call
    stdout  first {"way": "..."}, or {"error": "...", "kind": "missing" or "driver"} and the end;
            then for each line {"do", "pid", "result": a CUresult's name, "value"}

`do` is `thread` (the id of the restore thread, an error where the process has no CUDA state),
`state`, `lock` ("timeout_ms"), `checkpoint`, `restore` ("pairs": [[old UUID, new UUID], ...], none
for the same cards) or `unlock`. Two results are no CUresult: `GONE`, no process with this PID and
start time is left, and `THREAD`, the PID is a thread's: the driver takes those, too, and the
process does not survive it (NVIDIA/cuda-checkpoint issue 41).

Made through cuda-bindings, or else through the program `cuda-checkpoint`, whose path is the first
argument; what that one prints on a failure is the result.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys

TYPE_CHECKING = False  # without the import: every module counts here
if TYPE_CHECKING:
    from typing import Any

OK = "CUDA_SUCCESS"
STATES = ("running", "locked", "checkpointed", "failed", "checkpointing", "restoring")


class Unusable(Exception):
    """Why no call can be made; `kind` as above."""

    def __init__(self, what: str, kind: str) -> None:
        super().__init__(what)
        self.kind = kind


class Bindings:
    """cuda-bindings, the driver's API call by call."""

    def __init__(self) -> None:
        try:
            import cuda.bindings
            from cuda.bindings import driver
        except ImportError as error:
            raise Unusable("cuda-bindings is not installed", "missing") from error
        self._driver: Any = driver
        self.way = f"cuda-bindings {cuda.bindings.__version__}"
        if not hasattr(driver, "cuCheckpointProcessLock"):
            raise Unusable(f"{self.way} is older than 12.8", "missing")
        try:
            (result,) = driver.cuInit(0)
        except Exception as error:  # whatever its loader raises
            raise Unusable(f"the CUDA driver can't be loaded: {error}", "driver") from error
        if result != 0:
            raise Unusable(f"cuInit: {result.name}", "driver")

    def call(self, request: dict[str, Any]) -> tuple[str, Any]:
        pid = int(request["pid"])
        try:
            result, *values = getattr(self, request["do"])(pid, request)
        except (RuntimeError, AttributeError, ValueError) as error:
            # "Function ... not found": the driver is older than the API. Bindings of 12.8 and 12.9
            # know no map of cards, and trip over the state of a call that failed.
            return f"{self.way}: {str(error).strip() or type(error).__name__}", None
        return result.name, values[0] if values else None

    def thread(self, pid: int, _: dict[str, Any]) -> Any:
        return self._driver.cuCheckpointProcessGetRestoreThreadId(pid)

    def state(self, pid: int, _: dict[str, Any]) -> Any:
        result, state = self._driver.cuCheckpointProcessGetState(pid)
        number = int(state) if result == 0 else -1
        return result, STATES[number] if 0 <= number < len(STATES) else f"state {number}"

    def lock(self, pid: int, request: dict[str, Any]) -> Any:
        wanted = self._driver.CUcheckpointLockArgs()
        wanted.timeoutMs = int(request["timeout_ms"])
        return self._driver.cuCheckpointProcessLock(pid, wanted)

    def checkpoint(self, pid: int, _: dict[str, Any]) -> Any:
        return self._driver.cuCheckpointProcessCheckpoint(pid, None)

    def restore(self, pid: int, request: dict[str, Any]) -> Any:
        if not request["pairs"]:
            return self._driver.cuCheckpointProcessRestore(pid, None)
        kept: list[Any] = []  # their bytes are not copied
        pairs = []
        for old, new in request["pairs"]:
            pair = self._driver.CUcheckpointGpuPair()
            pair.oldUuid, pair.newUuid = self._uuid(old, kept), self._uuid(new, kept)
            pairs.append(pair)
        wanted = self._driver.CUcheckpointRestoreArgs()
        wanted.gpuPairs, wanted.gpuPairsCount = pairs, len(pairs)
        return self._driver.cuCheckpointProcessRestore(pid, wanted)

    def unlock(self, pid: int, _: dict[str, Any]) -> Any:
        return self._driver.cuCheckpointProcessUnlock(pid, None)

    def _uuid(self, text: str, kept: list[Any]) -> Any:
        raw = bytes.fromhex(text.removeprefix("GPU-").replace("-", ""))
        if len(raw) != 16:
            raise RuntimeError(f"{text} is no UUID of a GPU")
        kept.append(ctypes.create_string_buffer(raw, len(raw)))
        return self._driver.CUuuid(ctypes.addressof(kept[-1]))


class Program:
    """NVIDIA's cuda-checkpoint, one run for each call."""

    def __init__(self, path: str) -> None:
        if not os.access(path, os.X_OK):
            raise Unusable(f"there is no program {path}", "missing")
        self._path = path
        self.way = path

    def call(self, request: dict[str, Any]) -> tuple[str, Any]:
        words = {
            "thread": ["--get-restore-tid"],
            "state": ["--get-state"],
            "lock": ["--action", "lock", "--timeout", str(request.get("timeout_ms", 0))],
            "checkpoint": ["--action", "checkpoint"],
            "restore": ["--action", "restore", *self._map(request.get("pairs"))],
            "unlock": ["--action", "unlock"],
        }[request["do"]]
        done = subprocess.run(
            [self._path, *words, "--pid", str(request["pid"])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        said = done.stdout.decode(errors="replace").strip()
        if done.returncode:
            return said[-200:] or f"cuda-checkpoint ended with {done.returncode}", None
        return OK, said.split()[-1].lower() if said else None

    def _map(self, pairs: Any) -> list[str]:
        # Not with --toggle, which passes over it without a word (google/gvisor issue 14817).
        return ["--device-map", ",".join(f"{old}={new}" for old, new in pairs)] if pairs else []


def identity(pid: int) -> tuple[int, int]:
    """(thread group, start time in ticks) of a PID; zeros where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            start = int(file.read().rpartition(b")")[2].split()[19])
        with open(f"/proc/{pid}/status", "rb") as file:
            group = next(line for line in file if line.startswith(b"Tgid:"))
    except (OSError, StopIteration):
        return 0, 0
    return int(group.split()[1]), start


def answer(way: Bindings | Program, request: dict[str, Any]) -> tuple[str, Any]:
    pid = int(request["pid"])
    group, start = identity(pid)
    if group and group != pid:
        return "THREAD", None
    if not group or start != int(request["start"]):
        return "GONE", None
    return way.call(request)


def say(out: int, message: dict[str, Any]) -> None:
    os.write(out, json.dumps(message).encode() + b"\n")


def open_way(program: str) -> Bindings | Program:
    try:
        return Bindings()
    except Unusable as first:
        if first.kind != "missing":
            raise
        try:
            return Program(program)
        except Unusable as second:
            raise Unusable(f"{first}, and {second}", "missing") from None


def main() -> None:
    # An agent that died is no reason to leave a call half done, nor to go on.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    out = os.dup(1)
    os.dup2(2, 1)  # the driver's library may write, too
    try:
        way = open_way(sys.argv[1])
    except Unusable as why:
        say(out, {"error": str(why), "kind": why.kind})
        return
    say(out, {"way": way.way})
    for line in sys.stdin:
        request = json.loads(line)
        result, value = answer(way, request)
        say(out, {"do": request["do"], "pid": request["pid"], "result": result, "value": value})


if __name__ == "__main__":
    main()
