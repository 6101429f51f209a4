"""The GPUs of this node as the agent reports them: for fit, and for `reclaim check`.

Where a session has a GPU, NVML is read all the time and this looks at what comes in. Elsewhere the
same program is run for one round only, at the agent's start and now and then: it must not keep a
driver loaded that an admin wants to take out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_reclaim.adapters.gpu.watch import CHILD, START_LONGEST, STARTING, NvmlWatch, Round
from slurm_reclaim.model import driver as drivers
from slurm_reclaim.model.checkpoint import GpuCard

LOOK_EVERY = 600.0  # seconds; at once where device files or the loaded driver differ
AGAIN = 60.0  # seconds after a look that told nothing
AT_START = 5.0  # seconds that the agent's start waits for the first look
AT_ONCE = 0.05  # a report or a job's start must not wait for NVML
FRESH = 30.0
NVIDIA = "0x10de"
# The same words each time: the controller works out anew what fits where when facts change.
SILENT = "NVML does not answer"


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """As in NodeFacts: `problem` says why no session with CUDA state can be restored here."""

    cards: tuple[GpuCard, ...] = ()
    driver: str = ""
    problem: str = ""


def not_known() -> str:
    """What stands for `api` where nobody says how the driver is called."""
    return "whether CUDA's checkpoint API can be called is not known"


class NodeCards:
    """`look` may be called from several threads. `api` tells why CUDA's checkpoint API can't be
    called on this node, "" where it can; it is asked as seldom as NVML is looked at. `root` is /
    but for tests."""

    def __init__(
        self,
        watch: NvmlWatch,
        api: Callable[[], str] = not_known,
        environment: dict[str, str] | None = None,
        root: Path = Path("/"),
    ) -> None:
        self._watch = watch
        self._api = api
        self._environment = {"PATH": "/usr/bin:/bin", "LANG": "C", **(environment or {})}
        self._root = root
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._due = 0.0
        self._signature: tuple[str, ...] = ()
        self._known = NodeGpus()
        self._api_due = 0.0
        self._api_says = ""

    def look(self, patience: float = AT_ONCE) -> NodeGpus:
        """What was there a moment ago; waits at most `patience` seconds for more. A card that was
        seen once and a version that was read once stay known while NVML says nothing, with the
        reason as `problem`."""
        with self._lock:
            signature = self._hardware()
            if not signature:
                self._known = NodeGpus()
                return self._known
            if signature != self._signature:
                self._signature, self._due, self._api_due = signature, 0.0, 0.0
            running = self._watch.latest()
            if running is not None and abs(time.time() - running["at"]) < FRESH:
                self._take(running)
            else:
                self._look(patience)
            return self._known

    def _hardware(self) -> tuple[str, ...]:
        """What is there of NVIDIA's, told without the driver; () where nothing is."""
        files = sorted(p.name for p in (self._root / "dev").glob("nvidia[0-9]*"))
        try:
            loaded = (self._root / "proc/driver/nvidia/version").read_text()
        except OSError:
            loaded = ""
        if files or loaded:
            return (*files, loaded)
        return ("unloaded",) if any(self._on_bus()) else ()

    def _on_bus(self) -> Iterable[bool]:
        for vendor in (self._root / "sys/bus/pci/devices").glob("*/vendor"):
            try:
                kind = vendor.with_name("class").read_text()
                yield vendor.read_text().strip() == NVIDIA and kind.startswith("0x03")
            except OSError:
                continue

    # -- a look of our own --------------------------------------------------------------------

    def _look(self, patience: float) -> None:
        if self._child is None:
            if time.monotonic() < self._due:
                return
            if not self._start():
                return
        child = self._child
        assert child is not None
        try:
            said, _ = child.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            self._waits(child)
            return
        self._child = None
        self._take(_message(said, child.returncode))

    def _start(self) -> bool:
        self._began = time.monotonic()
        self._due = self._began + AGAIN
        try:
            # Its input is at its end, so that it ends by itself after one round.
            self._child = subprocess.Popen(
                [sys.executable, "-I", str(CHILD)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                cwd="/",
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            self._unknown(f"NVML's reader could not be started: {error}")
            return False
        return True

    def _waits(self, child: subprocess.Popen[bytes]) -> None:
        waited = time.monotonic() - self._began
        if waited < START_LONGEST:
            if not self._known.cards:
                self._unknown(STARTING)
            return
        # One that sleeps in the driver can't be ended: no other is started beside it.
        child.kill()
        self._unknown(SILENT)

    # -- what it says -------------------------------------------------------------------------

    def _take(self, said: Round) -> None:
        if "error" in said:
            self._unknown(said["error"])
            return
        now = time.monotonic()
        self._due = now + LOOK_EVERY
        if now >= self._api_due:
            self._api_due, self._api_says = self._due, self._api()
        cards = tuple(_card(card) for card in said["cards"] if "error" not in card)
        driver = str(said.get("driver", ""))
        problem = drivers.problem(driver, os.uname().machine) or self._api_says
        self._known = NodeGpus(cards, driver, problem)

    def _unknown(self, why: str) -> None:
        self._known = replace(self._known, problem=why)


def _message(said: bytes, status: int) -> Round:
    try:
        found = json.loads(said.splitlines()[0])
        found["cards" if "error" not in found else "error"]
    except (IndexError, ValueError, KeyError, TypeError):
        return {"error": f"NVML's reader ended ({status})"}
    return found  # type: ignore[no-any-return]


def _card(card: Round) -> GpuCard:
    return GpuCard(
        uuid=card["uuid"], model=card["model"], memory=max(0, card["memory"][0]), mig=card["mig"]
    )
