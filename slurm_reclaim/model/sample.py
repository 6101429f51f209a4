"""What an agent measured of one session in one interval.

A signal that can't be measured says so (`value` None) and is never left out or written as 0: what
is unknown must stop the clock toward hibernation (S4). A signal that does not apply to the session
(no GPU in the job, no Jupyter among its processes) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Signal(str, Enum):
    """The unit of `Reading.value`:

    `gpu`: percent of the time in which the SMs of the busiest of the job's GPUs worked, the highest
    of the interval; `gpu-memory`: percent, memory bandwidth likewise; `gpu-codec`: percent, encoder
    or decoder; `gpu-pcie`: bytes per second to and from the busiest GPU; `cpu`: cores (CPU seconds
    per second) of everything in the job; `io`: bytes per second read and written by it; `network`:
    bytes per second over its connections to elsewhere; `terminal`: terminals with new input;
    `jupyter`: kernels that are busy."""

    GPU = "gpu"
    GPU_MEMORY = "gpu-memory"
    GPU_CODEC = "gpu-codec"
    GPU_PCIE = "gpu-pcie"
    CPU = "cpu"
    IO = "io"
    NETWORK = "network"
    TERMINAL = "terminal"
    JUPYTER = "jupyter"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Reading:
    """`value` in the signal's unit over the sample's interval, None where it is unknown. `last`:
    Unix seconds of the last use where the source knows that itself (a terminal's last input, a
    kernel's last execution), else 0. `what` names for people what was seen ("kernel 3f2a busy") or
    why it is unknown ("NVML: not supported (MIG)")."""

    value: float | None
    last: float = 0.0
    what: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """`at`: Unix seconds of the node's clock at the end of the interval, before anything was looked
    at, so that a reading may know of a use that came after; `seconds` its length;
    `readings` by the names of `Signal`."""

    at: float
    seconds: float
    readings: Mapping[str, Reading] = field(default_factory=dict)

    @property
    def began(self) -> float:
        return self.at - self.seconds


@dataclass(frozen=True, slots=True)
class GpuHeld:
    """A GPU of the job. `memory`: bytes of it that the session's processes hold, -1 unknown;
    `contexts`: how many of its processes have a CUDA context, -1 unknown; `foreign`: processes on
    it that are none of the job's ("python (pid 4711)"). Memory held is not use."""

    uuid: str
    model: str
    index: int
    memory_total: int = 0
    memory: int = -1
    contexts: int = -1
    foreign: tuple[str, ...] = ()


def merge(samples: Sequence[Sample]) -> Sample:
    """Samples that follow each other, in order, as one of the whole time: the highest values, the
    latest uses. What was unknown in any of them is unknown, and so is a signal that came or went.
    Raises ValueError for no samples."""
    if not samples:
        raise ValueError("no samples to merge")
    first, last = samples[0], samples[-1]
    names = dict.fromkeys(name for sample in samples for name in sample.readings)
    readings = {name: _highest([s.readings.get(name) for s in samples]) for name in names}
    return Sample(last.at, last.at - first.began, readings)


_ABSENT = Reading(None, what="not measured all the time")


def _highest(readings: Sequence[Reading | None]) -> Reading:
    latest = max((r.last for r in readings if r is not None), default=0.0)
    unknown = next((r or _ABSENT for r in readings if r is None or r.value is None), None)
    if unknown is not None:
        return Reading(None, latest, unknown.what)
    top = max((r for r in readings if r is not None), key=lambda r: r.value or 0.0)
    return Reading(top.value, latest, top.what)
