"""An agent that takes a session's GPU state and is killed at a call: run by test_killed.py.

Arguments: the record's file, the node's folder, the libraries' folder, the action and which call of
it; 0 before it is asked for, 1 after it was answered.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec

from slurm_reclaim.adapters.cuda.driver import Driver
from slurm_reclaim.adapters.cuda.state import CudaState
from slurm_reclaim.adapters.gpu.watch import NvmlWatch
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.config.schema import Gpu
from slurm_reclaim.model.node_session import NodeSession


def main() -> None:
    path, folder, libraries = map(Path, sys.argv[1:4])
    action, position, after = sys.argv[4], int(sys.argv[5]), sys.argv[6] == "1"
    environment = {
        "LD_LIBRARY_PATH": str(libraries),
        "NVML_SIMULATED": str(folder / "nvml"),
        "SIMULATED_GPU_DEVICES": str(folder / "devices"),
        "SIMULATED_GPU_MEMORY": str(folder / "memory"),
    }
    record = msgspec.json.decode(path.read_bytes(), type=NodeSession)
    asked: list[str] = []
    ask = Driver._ask

    def deadly(driver: Driver, doing: str, *rest: object, **more: object) -> object:
        asked.append(doing)
        here = doing == action and asked.count(action) == position + 1
        if here and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        said = ask(driver, doing, *rest, **more)  # type: ignore[arg-type]
        if here:
            os.kill(os.getpid(), signal.SIGKILL)
        return said

    def save() -> None:
        path.write_bytes(msgspec.json.encode(record))

    def note(pid: int) -> None:
        record.worker, record.worker_start = pid, tree.start_time(pid) if pid else 0
        save()

    Driver._ask = deadly  # type: ignore[method-assign,assignment]
    state = CudaState(record, Gpu(), save, note, NvmlWatch(environment), environment)
    assert state.blockers(tree.members(record.init)) == []
    state.take(lambda: tree.members(record.init))


if __name__ == "__main__":
    main()
