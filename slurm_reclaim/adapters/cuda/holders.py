"""What of a session has to do with a GPU, as the kernel shows it: open device files, mapped
libraries, and a few words of its environment. Whether there is CUDA state only the driver knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from slurm_reclaim.adapters.proc.tree import PROC, Process, descriptors, kernel_text
from slurm_reclaim.model.printable import line

# What the driver closes at a checkpoint and opens again at the restore; no other file of NVIDIA's.
DEVICE = re.compile(r"/dev/(nvidia\d+|nvidiactl|nvidia-uvm)$")
GDR = "/dev/gdrdrv"
_NVML = re.compile(r"/libnvidia-ml\.so(\.[\d.]+)?$")
_LIBCUDA = re.compile(r"/libcuda\.so(\.[\d.]+)?$")
# What is built with the CUDA toolkit, and not by hand on the driver's API alone.
_FRAMEWORK = re.compile(
    r"/lib(cudart|cublas|cublasLt|cudnn\w*|nccl|torch_cuda|tensorflow\w*|xla\w*|cupy\w*)[-.]"
)
# Only there while a tool looks on. libcupti is no sign: PyTorch always maps it.
_TOOL = re.compile(
    r"/lib(ToolsInjection\w*|sanitizer-collection|sanitizer-public|nsys\w*|cudadebugger"
    r"|nvperf_target|cuda-injection\w*)\.so"
)
# NCCL's segments, and those in which processes share CUDA events and memory handles.
_SHARED = re.compile(r"/dev/shm/(nccl-|cuda\.shm\.)")
_MOST_TEXT = 16 << 20
_ENVIRONMENT = frozenset(
    ("CUDA_INJECTION64_PATH", "CUDA_MPS_PIPE_DIRECTORY", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES")
)


@dataclass(frozen=True, slots=True)
class Holder:
    """A process with a GPU's device file open, or with the driver's library mapped. `devices`
    device files that it has open or mapped; `framework`, `tool` and `shared` are one mapped file
    of each kind, "" where there is none; `environment` what of it may matter here. Names are as
    they can be shown."""

    process: Process
    devices: frozenset[str] = frozenset()
    libcuda: bool = False
    nvml: bool = False
    framework: str = ""
    tool: str = ""
    probed: bool = False
    shared: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def gpu(self) -> frozenset[str]:
        """The device files of its that CUDA state may account for."""
        return frozenset(path for path in self.devices if DEVICE.match(path))


def find(tree: Iterable[Process]) -> list[Holder]:
    """Of the living. What ends meanwhile is left out."""
    found = []
    for process in tree:
        if process.state in "ZX":
            continue
        holder = look(process)
        if holder.devices or holder.libcuda:
            found.append(holder)
    return found


def look(process: Process) -> Holder:
    mapped, probed = _mapped(process.pid)
    opened = {_plain(target) for _, target in descriptors(PROC / str(process.pid))}
    devices = frozenset(p for p in opened | mapped if DEVICE.match(p) or p == GDR)
    libcuda = any(_LIBCUDA.search(path) for path in mapped)
    if not (devices or libcuda):
        return Holder(process)
    return Holder(
        process,
        devices,
        libcuda,
        nvml=any(_NVML.search(path) for path in mapped),
        framework=_first(_FRAMEWORK.search, mapped),
        tool=_first(_TOOL.search, mapped),
        probed=probed,
        shared=_first(_SHARED.match, mapped),
        environment=_environment(process.pid),
    )


def _first(matches: Callable[[str], object], paths: Iterable[str]) -> str:
    return line(next((path for path in sorted(paths) if matches(path)), ""))


def _mapped(pid: int) -> tuple[set[str], bool]:
    """Paths of what is mapped, and whether a uprobe was hit in it."""
    try:
        text = kernel_text(PROC / str(pid) / "maps")[:_MOST_TEXT]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set(), False
    paths = {
        line.split(None, 5)[5] for line in text.split("\n") if line.count(" ") > 4 and "/" in line
    }
    return {_plain(path) for path in paths if path.startswith("/")}, "[uprobes]" in text


def _plain(path: str) -> str:
    """Of what was replaced, or made anew, since it was opened: a driver's update does that."""
    return path.removesuffix(" (deleted)")


def _environment(pid: int) -> dict[str, str]:
    """As it was started with."""
    try:
        text = kernel_text(PROC / str(pid) / "environ")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    pairs = (word.partition("=") for word in text.split("\0"))
    return {name: line(value) for name, _, value in pairs if name in _ENVIRONMENT}
