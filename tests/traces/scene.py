"""One session of a made-up trace: phases one after the other, each with its label and its signals.

Everything comes from one seeded source of chance, so that a trace is the same each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from slurm_reclaim.model.sample import Reading, Sample
from slurm_reclaim.model.trace import Entry, Label, Measured, Return, Watched

BEGAN = 1_800_000_000.0
HOUR, MINUTE = 3600.0, 60.0

# Signal -> its value in one sample, or the whole Reading; what is left out is at rest.
Values = dict[str, "float | Reading | None"]
Signals = Callable[[random.Random, float], Values]


def rest(chance: random.Random) -> Values:
    """A Jupyter server, a kernel and a shell that nobody uses: heartbeats and log lines."""
    return {
        "gpu": 0.0, "gpu-memory": 0.0, "gpu-codec": 0.0, "gpu-pcie": chance.choice((0, 0, 900)),
        "cpu": chance.choice((0.002, 0.003, 0.004, 0.008)),
        "io": chance.choice((0, 0, 0, 400)), "network": chance.choice((0, 60, 130, 300)),
        "terminal": 0.0, "jupyter": 0.0,
    }  # fmt: skip


@dataclass
class Scene:
    """`step`: seconds of one sample. Times go from BEGAN on."""

    name: str
    behaviour: str
    chance: random.Random
    step: float = 30.0
    gpus: int = 1
    at: float = BEGAN
    last_input: float = 0.0
    last_cell: float = 0.0
    labels: list[Label] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def phase(
        self,
        seconds: float,
        signals: Signals | None = None,
        *,
        active: bool,
        typed: Callable[[random.Random], float] | None = None,
        cells: Callable[[random.Random], float] | None = None,
        behaviour: str = "",
        bare: bool = False,
    ) -> None:
        """`typed`, `cells`: seconds until the next input in a terminal, the next run of a cell; the
        first is at once, for it is how one knows that somebody is there. `bare`: `signals` say all
        there is."""
        begin, end = self.at, self.at + round(seconds / self.step) * self.step
        if end <= begin:
            return
        self._label(begin, end, active, behaviour or self.behaviour)
        next_key = begin + 1.0 if typed else float("inf")
        next_cell = begin + 1.0 if cells else float("inf")
        while self.at < end:
            now = self.at + self.step
            values = {} if bare else rest(self.chance)
            if signals is not None:
                values |= signals(self.chance, now - begin)
            while next_key < now:
                self.last_input, values["terminal"] = round(next_key), 1.0
                next_key += typed(self.chance) if typed else 0.0
            while next_cell < now:
                self.last_cell, values["cpu"] = round(next_cell), 0.4
                next_cell += cells(self.chance) if cells else 0.0
            self.samples.append(Sample(now, self.step, self._readings(values)))
            self.at = now

    def gap(self, seconds: float) -> None:
        """Nobody measures; what is true goes on."""
        self.at += round(seconds / self.step) * self.step
        if self.labels:
            last = self.labels[-1]
            self.labels[-1] = Label(last.session, last.begin, self.at, last.behaviour, last.active)

    def back(self) -> None:
        """Its owner is there again."""
        self.returns.append(self.at)

    def entries(self) -> Iterator[Entry]:
        tres = f"cpu=4,mem=16G,gres/gpu={self.gpus}" if self.gpus else "cpu=4,mem=16G"
        yield Watched(
            self.name, user=self.name, partition="gpu", name=self.behaviour, tres=tres,
            started=BEGAN,
        )  # fmt: skip
        yield from self.labels
        yield from (Return(self.name, at) for at in self.returns)
        yield from (Measured(self.name, sample) for sample in self.samples)

    def _label(self, begin: float, end: float, active: bool, behaviour: str) -> None:
        last = self.labels[-1] if self.labels else None
        if last and (last.end, last.active, last.behaviour) == (begin, active, behaviour):
            self.labels[-1] = Label(self.name, last.begin, end, behaviour, active)
        else:
            self.labels.append(Label(self.name, begin, end, behaviour, active))

    def _readings(self, values: Values) -> dict[str, Reading]:
        lasts = {"terminal": self.last_input, "jupyter": self.last_cell}
        found = {}
        for name, value in values.items():
            if name.startswith("gpu") and not self.gpus:
                continue
            if isinstance(value, Reading):
                found[name] = value
            else:
                found[name] = Reading(value, lasts.get(name, 0.0))
        return found
