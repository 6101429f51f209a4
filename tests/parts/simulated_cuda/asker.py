"""Makes the calls it is told to, one JSON line each: `[call, pid, argument]`, and answers with
`[name of the result, value]`. `asker.py bindings` by the real cuda-bindings, `asker.py ctypes` by
hand, where a sanitizer must be in the process first. A call `init` comes before the others."""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

CALLS = {
    "state": "cuCheckpointProcessGetState",
    "thread": "cuCheckpointProcessGetRestoreThreadId",
    "lock": "cuCheckpointProcessLock",
    "checkpoint": "cuCheckpointProcessCheckpoint",
    "restore": "cuCheckpointProcessRestore",
    "unlock": "cuCheckpointProcessUnlock",
}


def raw(uuid: str) -> bytes:
    return bytes.fromhex(uuid.removeprefix("GPU-").replace("-", ""))


class Bindings:
    def __init__(self) -> None:
        from cuda.bindings import driver

        self.driver: Any = driver
        self.kept: list[Any] = []

    def uuid(self, text: str) -> Any:
        self.kept.append(ctypes.create_string_buffer(raw(text), 16))
        return self.driver.CUuuid(ctypes.addressof(self.kept[-1]))

    def arguments(self, call: str, argument: Any) -> Any:
        if argument is None:
            return None
        if call == "lock":
            lock = self.driver.CUcheckpointLockArgs()
            lock.timeoutMs = argument
            return lock
        pairs = []
        for old, new in argument:
            pairs.append(self.driver.CUcheckpointGpuPair())
            pairs[-1].oldUuid, pairs[-1].newUuid = self.uuid(old), self.uuid(new)
        restore = self.driver.CUcheckpointRestoreArgs()
        restore.gpuPairs, restore.gpuPairsCount = pairs, len(pairs)
        return restore

    def __call__(self, call: str, pid: int, argument: Any) -> tuple[str, Any]:
        if call == "init":
            return self.driver.cuInit(0)[0].name, None
        function = getattr(self.driver, CALLS[call])
        if call in ("state", "thread"):
            result, value = function(pid)
            return result.name, None if value is None else int(value)
        return function(pid, self.arguments(call, argument))[0].name, None


class Lock(ctypes.Structure):
    _fields_ = (("timeout", ctypes.c_uint), ("zero", ctypes.c_ubyte * 60))


class Restore(ctypes.Structure):
    _fields_ = (
        ("pairs", ctypes.c_void_p),
        ("count", ctypes.c_uint),
        ("zero", ctypes.c_ubyte * 52),
    )


class ByHand:
    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def name(self, code: int) -> str:
        said = ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(said))
        return (said.value or b"?").decode()

    def __call__(self, call: str, pid: int, argument: Any) -> tuple[str, Any]:
        if call == "init":
            return self.name(self.library.cuInit(0)), None
        function = getattr(self.library, CALLS[call])
        if call in ("state", "thread"):
            value = ctypes.c_int(-1)
            code = function(pid, ctypes.byref(value))
            return self.name(code), value.value if code == 0 else None
        if argument is None:
            return self.name(function(pid, None)), None
        if call == "lock":
            return self.name(function(pid, ctypes.byref(Lock(argument)))), None
        pairs = ctypes.create_string_buffer(b"".join(raw(old) + raw(new) for old, new in argument))
        restore = Restore(ctypes.addressof(pairs), len(argument))
        return self.name(function(pid, ctypes.byref(restore))), None


if __name__ == "__main__":
    ask = Bindings() if sys.argv[1] == "bindings" else ByHand()
    for line in sys.stdin:
        try:
            answer: tuple[str, Any] = ask(*json.loads(line))
        except RuntimeError as error:  # cuda-bindings: the driver has no such call
            answer = (str(error), None)
        print(json.dumps(answer), flush=True)
