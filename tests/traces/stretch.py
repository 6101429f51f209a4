"""Minutes of real sessions, stretched to hours: the labelled trace of recorded behaviours.

tests/cluster/record_behaviours records each behaviour for some minutes. Here that piece is repeated
for as long as the behaviour is to last, with use before and after it and, where it was work, with
rest in between, all from recorded pieces. So what a sample shows is real (the GPUs are simulated),
and how long it goes on is not: nothing that happens less often than once in the recorded minutes is
in it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from slurm_reclaim.model.sample import Reading, Sample
from slurm_reclaim.model.trace import Entry, Header, Label, Measured
from slurm_reclaim.policy.idleness import AVERAGED

from .behaviours import NIGHT
from .scene import HOUR, MINUTE, Scene, Signals, Values

HARD = ("metadata-walk", "trickle")
PRESENT = ("thinking-between-cells", "editing")
AT_REST = ("abandoned", "shell-left")


@dataclass(frozen=True)
class Piece:
    """`samples` adjoin and begin at 0."""

    name: str
    active: bool
    began: float
    samples: tuple[Sample, ...]

    @property
    def notebook(self) -> bool:
        return "jupyter" in self.samples[0].readings


def pieces(recorded: Iterable[Entry], step: float) -> dict[str, Piece]:
    labels: dict[str, Label] = {}
    samples: dict[str, list[Sample]] = {}
    for entry in recorded:
        if isinstance(entry, Label):
            labels[entry.session] = entry
        elif isinstance(entry, Measured):
            samples.setdefault(entry.session, []).append(entry.sample)
    return {
        name: Piece(label.behaviour, label.active, samples[name][0].began,
                    tuple(coarser(samples[name], step)))
        for name, label in labels.items()
    }  # fmt: skip


def coarser(samples: Sequence[Sample], step: float) -> Iterator[Sample]:
    """As an agent with a longer interval would have measured: rates come from counters and are the
    average, of the others the highest and the latest count. A rest that fills no step is left."""
    held: list[Sample] = []
    for sample in samples:
        held.append(sample)
        length = sum(one.seconds for one in held)
        if length >= step - 0.5:
            names = dict.fromkeys(name for one in held for name in one.readings)
            readings = {name: _joined(name, held) for name in names}
            yield Sample(sample.at, length, readings)
            held = []


def _joined(name: str, held: Sequence[Sample]) -> Reading:
    readings = [one.readings.get(name) or Reading(None, what="not measured") for one in held]
    last = max(one.last for one in readings)
    unknown = next((one for one in readings if one.value is None), None)
    if unknown is not None:
        return Reading(None, last, unknown.what)
    values = [one.value or 0.0 for one in readings]
    if name in AVERAGED:
        total = sum(v * one.seconds for v, one in zip(values, held, strict=True))
        value = total / sum(one.seconds for one in held)
    else:
        value = max(values)
    return Reading(float(f"{value:.3g}"), last)


def repeated(scene: Scene, piece: Piece) -> Signals:
    """The piece over and over, from the scene's present time on. Uses that were recorded move
    along; what lay before the recording stays where it was."""
    began, index = scene.at, -1

    def signals(_: random.Random, at: float) -> Values:
        nonlocal index
        index += 1
        sample = piece.samples[index % len(piece.samples)]
        moved = began + at - sample.at
        return {
            name: replace(
                reading, last=round((moved if reading.last > piece.began else began - piece.began)
                                    + reading.last, 1) if reading.last else 0.0,
            )
            for name, reading in sample.readings.items()
        }  # fmt: skip

    return signals


def entries(
    recorded: Iterable[Entry], seed: int = 1, step: float = 60.0, *, hard: bool = False
) -> Iterator[Entry]:
    """`hard`: only those that no signal can tell from rest, else only the others."""
    found = pieces(recorded, step)
    yield Header(
        "lab", "minutes of real sessions, repeated for hours: tests/traces/stretch.py; "
        "GPUs simulated by script", by_session=True, complete=True,
    )  # fmt: skip
    for name, piece in found.items():
        if (name in HARD) is not hard:
            continue
        scene = Scene(name, name, random.Random(f"{seed} {name}"), step=step)
        _play(scene, piece, found)
        yield from scene.entries()


def _play(scene: Scene, piece: Piece, found: dict[str, Piece]) -> None:
    present, at_rest = (found[pair[0 if piece.notebook else 1]] for pair in (PRESENT, AT_REST))
    chance = scene.chance

    def part(seconds: float, what: Piece, active: bool, behaviour: str = "") -> None:
        signals = repeated(scene, what)
        scene.phase(seconds, signals, active=active, behaviour=behaviour, bare=True)

    def use() -> None:
        scene.back()
        part(chance.uniform(20, 60) * MINUTE, present, True, "use")

    use()
    if piece.active:
        part(chance.uniform(2, 5) * HOUR, piece, True)
        part(chance.uniform(*NIGHT) * HOUR, at_rest, False)
    else:
        part(chance.uniform(*NIGHT) * HOUR, piece, False)
    use()
