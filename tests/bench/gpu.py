"""What our way with GPU state costs over the bare driver calls.

    python -m tests.bench.gpu [--mib N] [--rounds N]

On the simulated driver (tests/gpu), so the copies themselves are no measure of anything: the same
client is locked, checkpointed, restored and unlocked by the four calls alone, and by the agent's
own code with all that it looks at before, in between and afterwards. The difference is what is
ours. Needs root.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_reclaim.adapters.cuda.driver import Driver
from slurm_reclaim.adapters.cuda.state import CudaState
from slurm_reclaim.adapters.gpu.watch import NvmlWatch
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.config.schema import Gpu
from slurm_reclaim.model.node_session import GpuGrant, NodeSession
from slurm_reclaim.model.order import Living

SIMULATED = Path(__file__).parents[1] / "gpu"
CLIENT = SIMULATED / "cuda_session.py"
SCRIPT = """driver 580.65.06
card
uuid GPU-51b00000-0000-0000-0000-000000000000
name Simulated GPU
minor 0
vram 85899345920 0
rates 0 0 0 0
pcie 0 0
"""


def simulated(folder: Path) -> dict[str, str]:
    """A node with one card; its environment."""
    build = folder / "build"
    subprocess.run(["make", "-s", "-C", str(SIMULATED), f"BUILD={build}"], check=True)
    for name in ("devices", "memory"):
        (folder / name).mkdir()
    (folder / "devices" / "nvidia0").touch()
    (folder / "nvml").write_text(SCRIPT)
    return {
        "LD_LIBRARY_PATH": str(build),
        "NVML_SIMULATED": str(folder / "nvml"),
        "SIMULATED_GPU_DEVICES": str(folder / "devices"),
        "SIMULATED_GPU_MEMORY": str(folder / "memory"),
    }


@contextmanager
def client(folder: Path, environment: dict[str, str], mib: int) -> Iterator[int]:
    """The PID of the init of a PID namespace with a client in it."""
    out = folder / "out"
    out.unlink(missing_ok=True)
    words = f"{sys.executable} {CLIENT} --mib {mib} --out {out} --interval 3600"
    outer = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", f"{words} & wait"],
        env={**os.environ, **environment},
    )
    try:
        while not out.exists() or not out.read_text():
            time.sleep(0.05)
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        yield int(children[0])
    finally:
        outer.kill()
        outer.wait()


def bare(init: int, environment: dict[str, str]) -> Callable[[], None]:
    """The four calls in one process that has called cuInit already."""
    driver = Driver("", environment=environment)
    (process,) = [p for p in tree.members(init) if driver.has_state(p)]

    def once() -> None:
        driver.lock(process, 60.0)
        driver.checkpoint(process, 600.0)
        driver.restore(process, 600.0)
        driver.unlock(process)

    return once


def ours(init: int, environment: dict[str, str], watch: NvmlWatch) -> Callable[[], None]:
    session = NodeSession(
        job_id=1, uid=0, gid=0, restarts=0, mode="fresh", living=Living.RUNNING, init=init,
        init_start=tree.start_time(init), gpus=GpuGrant((0,), 1, 1),
    )  # fmt: skip

    def once() -> None:
        state = CudaState(session, Gpu(), lambda: None, lambda _: None, watch, environment)
        members = tree.members(init)
        if blockers := state.blockers(members):
            raise SystemExit(f"it can't be saved: {blockers}")
        state.take(lambda: tree.members(init))
        state.give_back(tree.members(init))

    return once


def median(once: Callable[[], None], rounds: int) -> float:
    once()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mib", type=int, nargs="*", default=[16, 256])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("PID namespaces need root")
    print("GPU state there and back, simulated driver, median of", options.rounds)
    print(f"{'held':>10} {'bare calls':>12} {'ours':>12} {'more':>12}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = simulated(folder)
        watch = NvmlWatch(environment)
        for mib in options.mib:
            with client(folder, environment, mib) as init:
                plain = median(bare(init, environment), options.rounds)
                whole = median(ours(init, environment, watch), options.rounds)
            print(f"{mib:>6} MiB {plain:>10.3f} s {whole:>10.3f} s {whole - plain:>10.3f} s")
        watch.close()


if __name__ == "__main__":
    main()
