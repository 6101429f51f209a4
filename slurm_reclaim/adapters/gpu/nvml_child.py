"""Reads the node's GPUs through NVML, round after round, and writes one JSON line for each.

A program of its own, started by `watch` with this file's path: NVML calls can hang for good when a
card falls off the bus, a crash in the driver's library must not take the agent along, and a new
driver needs its new library loaded, which only a new process does. It imports nothing of ours, so
that it stays small.

    stdin   a line asks for a round now; the end of it ends the program
    stdout  {"error": "..."} and the end, or a round:
            {"at": s, "gauge": bool, "driver": "580.65.06" or "", "cards": [card, ...]}

Figures are of the time since the round before. A card has `index`,
`uuid`, `model`, `minor`, and either `error` or: `mig`; `memory` [total, used]; a `[value, what]`
for each of the signals gpu, gpu-memory, gpu-codec (percent) and gpu-pcie (bytes/s), the value null
where it is unknown and `what` says why, else how it was measured; `processes` [[pid, bytes or null,
GPU instance], ...] or null with `processes_error`; `use` {pid: [sm, memory, codec]} or null with
`use_error`; `instances` [[uuid, model, total, GPU instance], ...] of a MIG card.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time

TYPE_CHECKING = False  # without the import: every module counts here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# NVML keeps 14 to 20 s of utilization samples: read well before they are overwritten.
ROUND = 5.0
# Where there are only gauges, which show the last 1/6 to 1 s.
GAUGE_ROUND = 1.0
STALE = 10.0
FUTURE = 60.0
# More than this in one round, and SIGALRM ends the program where the kernel lets it.
ROUND_LONGEST = 60
ALONE_LONGEST = 600.0
ANEW_AFTER = 300.0
MOST_PROCESSES = 256
BLANK = 0x7FFFFFF0

SAMPLES = {"gpu": 1, "gpu-memory": 2, "encoder": 3, "decoder": 4}


class Unknown(Exception):
    """Says why a value is not known."""


def percent(value: int) -> float:
    if value >= BLANK:
        raise Unknown("NVML: blank value")
    if value > 100:
        raise Unknown(f"NVML: absurd value, {value} %")
    return float(value)


class Card:
    """One card while NVML is initialised. Every method raises Unknown, or `Lost` where the whole
    card is gone."""

    def __init__(
        self, nvml: Any, handle: Any, index: int, uuid: str, model: str, minor: int
    ) -> None:
        self._nvml = nvml
        self.handle = handle
        self.index = index
        self.uuid = uuid
        self.model = model
        self.minor = minor
        self._seen: dict[int, int] = {}  # kind of sample -> microseconds of the newest
        self._latest: dict[int, float] = {}  # kind of sample -> its value
        self._use_seen = 0
        self.gauge = False

    def round(self, now: float) -> dict[str, Any]:
        found = {"index": self.index, "uuid": self.uuid, "model": self.model, "minor": self.minor}
        try:
            return found | self._measure(now)
        except Lost as lost:
            return found | {"error": str(lost)}

    def _measure(self, now: float) -> dict[str, Any]:
        self.gauge = False
        mig = self._mig()
        found: dict[str, Any] = {"mig": mig, "memory": self._memory()}
        for name, measure in (
            ("gpu", lambda: self._utilization("gpu", now)),
            ("gpu-memory", lambda: self._utilization("gpu-memory", now)),
            ("gpu-codec", lambda: self._codec(now)),
            ("gpu-pcie", self._pcie),
        ):
            # A card split by MIG reports 0 or nothing for the whole.
            found[name] = [None, "NVML: not supported (MIG)"] if mig else told(measure)
        found["processes"], found["processes_error"] = told(self._processes)
        found["use"], found["use_error"] = told(lambda: self._use(now))
        found["instances"] = self._instances() if mig else []
        return found

    # -- calls --------------------------------------------------------------------------------

    def _call(self, function: str, *arguments: Any) -> Any:
        """What NVML answers. Absent: it has no such thing."""
        nvml = self._nvml
        try:
            return getattr(nvml, function)(self.handle, *arguments)
        except nvml.NVMLError as error:
            said = f"NVML: {reason(error)}"
            if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED,
                               nvml.NVML_ERROR_UNINITIALIZED):  # fmt: skip
                raise Lost(said) from error
            if error.value == nvml.NVML_ERROR_NOT_FOUND:
                raise NotFound(said) from error
            if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
                raise Absent(said) from error
            if error.value == nvml.NVML_SUCCESS:  # the library's word for an empty list
                raise NotFound(said) from error
            raise Unknown(said) from error

    def _mig(self) -> bool:
        try:
            return bool(self._call("nvmlDeviceGetMigMode")[0])
        except Absent:
            return False
        except Unknown:
            # It may be split: then figures of the whole would be wrong.
            return True

    def _memory(self) -> list[int]:
        try:
            memory = self._call("nvmlDeviceGetMemoryInfo")
        except Unknown:
            return [0, -1]
        return [int(memory.total), int(memory.used)]

    def _utilization(self, name: str, now: float) -> tuple[float, str]:
        sampled = self._sampled(SAMPLES[name], now)
        if sampled is not None:
            return sampled, "highest of the sample buffer"
        rates = self._call("nvmlDeviceGetUtilizationRates")
        self.gauge = True
        return percent(rates.gpu if name == "gpu" else rates.memory), "momentary, no sample buffer"

    def _codec(self, now: float) -> tuple[float, str]:
        values: list[float] = []
        how: list[str] = []
        for name, gauge in (
            ("encoder", "nvmlDeviceGetEncoderUtilization"),
            ("decoder", "nvmlDeviceGetDecoderUtilization"),
        ):
            sampled = self._sampled(SAMPLES[name], now)
            if sampled is None:
                sampled = percent(self._call(gauge)[0])
                how.append("momentary, no sample buffer")
            values.append(sampled)
        return max(values), how[0] if how else "highest of the sample buffer"

    def _pcie(self) -> tuple[float, str]:
        kilobytes = [self._call("nvmlDeviceGetPcieThroughput", counter) for counter in (0, 1)]
        if max(kilobytes) >= BLANK:
            raise Unknown("NVML: blank value")
        return sum(kilobytes) * 1024.0, "over 20 ms"

    def _sampled(self, kind: int, now: float) -> float | None:
        """The highest value since the last round; None where the driver keeps no such samples."""
        seen = self._seen.get(kind, 0)
        try:
            _, fresh = self._call("nvmlDeviceGetSamples", kind, seen)
        except NotFound:
            fresh = []
        except Absent:
            return None
        newest = max((s.timeStamp for s in fresh), default=seen)
        if newest == 0:
            return None
        age = now - newest / 1e6
        if not -FUTURE < age < STALE:
            # All of the buffer again next time: the clock may have been set.
            self._seen.pop(kind, None)
            raise Unknown(
                f"NVML: stale, newest sample {age:.0f} s old" if age > 0
                else f"NVML: newest sample {-age:.0f} s in the future"
            )  # fmt: skip
        self._seen[kind] = newest
        values = [percent(s.sampleValue.uiVal) for s in fresh]
        if fresh:
            self._latest[kind] = percent(max(fresh, key=lambda s: s.timeStamp).sampleValue.uiVal)
        return max(values, default=self._latest.get(kind, 0.0))

    def _processes(self) -> tuple[list[list[Any]], str]:
        listed = self._call("nvmlDeviceGetComputeRunningProcesses_v3")
        found = [[p.pid, p.usedGpuMemory, p.gpuInstanceId] for p in listed[:MOST_PROCESSES]]
        return found, ""

    def _use(self, now: float) -> tuple[dict[str, list[float]], str]:
        """Percent of SM, memory and codec by process, the highest of each since the last round.
        NVML lists only processes that did something."""
        try:
            samples = self._call("nvmlDeviceGetProcessUtilization", self._use_seen)
        except NotFound:
            samples = []
        found: dict[str, list[float]] = {}
        newest = self._use_seen
        for sample in samples:
            if sample.pid == 0 or sample.timeStamp <= self._use_seen:
                continue
            newest = max(newest, sample.timeStamp)
            codec = max(percent(sample.encUtil), percent(sample.decUtil))
            values = [percent(sample.smUtil), percent(sample.memUtil), codec]
            old = found.get(str(sample.pid), values)
            found[str(sample.pid)] = [max(pair) for pair in zip(old, values)]  # noqa: B905
        if newest / 1e6 < now + FUTURE:
            self._use_seen = newest
        return found, ""

    def _instances(self) -> list[list[Any]]:
        found: list[list[Any]] = []
        try:
            for number in range(self._call("nvmlDeviceGetMaxMigDeviceCount")):
                try:
                    part = self._call("nvmlDeviceGetMigDeviceHandleByIndex", number)
                except NotFound:
                    continue
                one = Card(self._nvml, part, self.index, "", "", -1)
                found.append(
                    [
                        one._call("nvmlDeviceGetUUID"),
                        one._call("nvmlDeviceGetName"),
                        one._memory()[0],
                        one._call("nvmlDeviceGetGpuInstanceId"),
                    ]
                )
        except Unknown:
            return []
        return found


class Lost(Exception):
    """The card answers nothing any more."""


class Absent(Unknown):
    """NVML has no such figure for this card."""


class NotFound(Unknown):
    """NVML has nothing to tell at the moment."""


def told(measure: Callable[[], tuple[Any, str]]) -> list[Any]:
    try:
        value, what = measure()
    except Unknown as unknown:
        return [None, str(unknown)]
    return [value, what]


def reason(error: Any) -> str:
    # The library's own words; an error it has no name for is asked of the driver.
    return str(error).strip().lower() or f"error {error.value}"


class Node:
    """All cards, from one initialisation to the next."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._cards: dict[int, Card] = {}
        self._initialised = 0.0
        self._driver = ""

    def open(self) -> None:
        """Raises NVMLError."""
        self._nvml.nvmlInit()
        self._initialised = time.monotonic()
        # It stays while NVML is initialised: a driver in use can't be unloaded.
        try:
            self._driver = str(self._nvml.nvmlSystemGetDriverVersion())
        except self._nvml.NVMLError:
            self._driver = ""

    def round(self, now: float) -> dict[str, Any]:
        """Raises NVMLError where not even the cards can be counted."""
        cards = [self._card(index, now) for index in range(self._nvml.nvmlDeviceGetCount())]
        if (
            any("error" in card for card in cards)
            and time.monotonic() > self._initialised + ANEW_AFTER
        ):
            self._anew()
        gauge = any(card.gauge for card in self._cards.values())
        return {"at": now, "gauge": gauge, "driver": self._driver, "cards": cards}

    def _anew(self) -> None:
        """A card that was lost may be back. What was seen of the others' samples is kept."""
        self._nvml.nvmlShutdown()
        self.open()
        for card in self._cards.values():
            card.handle = None

    def _card(self, index: int, now: float) -> dict[str, Any]:
        known = self._cards.get(index)
        try:
            if known is None or known.handle is None:
                known = self._identify(index, known)
        except self._nvml.NVMLError as error:
            said: dict[str, Any] = {"error": f"NVML: {reason(error)}", "index": index}
            if known is not None:
                said |= {"uuid": known.uuid, "model": known.model, "minor": known.minor}
            return {"uuid": "", "model": "", "minor": -1} | said
        return known.round(now)

    def _identify(self, index: int, known: Card | None) -> Card:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = nvml.nvmlDeviceGetUUID(handle)
        if known is not None and known.uuid == uuid:
            known.handle = handle
            return known
        try:
            minor = nvml.nvmlDeviceGetMinorNumber(handle)
        except nvml.NVMLError:
            minor = -1
        card = Card(nvml, handle, index, uuid, nvml.nvmlDeviceGetName(handle), minor)
        self._cards[index] = card
        return card


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def asked(seconds: float) -> int:
    """Wait for a line. 1 it came, 0 the time is over, -1 nobody will ask any more."""
    if not select.select([0], [], [], seconds)[0]:
        return 0
    return 1 if os.read(0, 4096) else -1


def watch(nvml: Any) -> None:
    node = Node(nvml)
    signal.alarm(ROUND_LONGEST)
    node.open()
    last_asked = time.monotonic()
    while time.monotonic() < last_asked + ALONE_LONGEST:
        signal.alarm(ROUND_LONGEST)
        found = node.round(time.time())
        signal.alarm(0)
        say(found)
        # Never in step with what repeats in the program that is watched.
        pause = (GAUGE_ROUND if found["gauge"] else ROUND) * random.uniform(0.7, 1.0)
        word = asked(pause)
        if word < 0:
            return
        if word:
            last_asked = time.monotonic()


def main() -> None:
    # An agent that died leaves nobody to write to.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        import pynvml
    except ImportError:
        say({"error": "nvidia-ml-py is not installed"})
        return
    try:
        watch(pynvml)
    except pynvml.NVMLError as error:
        say({"error": f"NVML: {reason(error)}"})


if __name__ == "__main__":
    main()
