"""Behaviours, labelled by construction. This is the synthetic set: no cluster was asked.

What an owner does is a play of a few phases; each says whether the session is in use. `HARD` are
those that no signal of ours can tell apart from rest; they are scored by themselves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from slurm_reclaim.model.sample import Reading
from slurm_reclaim.model.trace import Entry, Header

from .scene import HOUR, MINUTE, Scene, Signals, Values

# How long a session is left, in hours: from an afternoon to a night and a day.
NIGHT = (5.0, 36.0)

Play = Callable[[Scene], None]


def minutes(low: float, high: float) -> Callable[[random.Random], float]:
    return lambda chance: chance.uniform(low, high) * MINUTE


def steady(**values: float) -> Signals:
    """These values, give or take a fifth; `_` in a name stands for `-`. A few levels, not any
    number, for the sake of the file's size."""

    def signals(chance: random.Random, _: float) -> Values:
        return {
            name.replace("_", "-"): float(f"{value * chance.choice((0.8, 1.0, 1.0, 1.2)):.3g}")
            for name, value in values.items()
        }

    return signals


def busy(**values: float) -> Signals:
    """A kernel that runs a cell, and these values."""
    also = steady(**values)
    return lambda chance, at: {**also(chance, at), "jupyter": Reading(1.0, what="kernel busy")}


def use(scene: Scene) -> None:
    """Its owner at work: cells, some typing."""
    scene.back()
    length = scene.chance.uniform(20, 60) * MINUTE
    scene.phase(length, active=True, typed=minutes(0.2, 9), cells=minutes(0.3, 9), behaviour="use")


def left_with(signals: Signals | None = None) -> Play:
    """Used, then left for hours while this goes on, which nobody needs."""

    def play(scene: Scene) -> None:
        use(scene)
        scene.phase(scene.chance.uniform(*NIGHT) * HOUR, signals, active=False)
        use(scene)

    return play


def working_by(signals: Signals) -> Play:
    """Used, then left for hours while this goes on, which is work; then done and still."""

    def play(scene: Scene) -> None:
        use(scene)
        scene.phase(scene.chance.uniform(2, 5) * HOUR, signals, active=True)
        scene.phase(scene.chance.uniform(*NIGHT) * HOUR, active=False)
        use(scene)

    return play


def present(typed: tuple[float, float] | None, cells: tuple[float, float] | None) -> Play:
    """Its owner is there for hours and shows it now and then, minutes apart; then leaves."""

    def play(scene: Scene) -> None:
        scene.back()
        scene.phase(
            scene.chance.uniform(2, 5) * HOUR, active=True,
            typed=minutes(*typed) if typed else None, cells=minutes(*cells) if cells else None,
        )  # fmt: skip
        scene.phase(scene.chance.uniform(*NIGHT) * HOUR, active=False)
        use(scene)

    return play


def away_for(low: float, high: float) -> Play:
    """Leaves for some minutes and comes back, several times."""

    def play(scene: Scene) -> None:
        for _ in range(4):
            use(scene)
            scene.phase(scene.chance.uniform(low, high) * MINUTE, active=False)
        use(scene)

    return play


def now_and_then(every: float, quiet: Values, loud: Values) -> Signals:
    """`loud` in the sample in which each period of `every` seconds begins."""
    return lambda _, at: dict(loud if at % every < 60.0 else quiet)


def lost_agent(scene: Scene) -> None:
    use(scene)
    for _ in range(3):
        scene.phase(scene.chance.uniform(40, 60) * MINUTE, active=False)
        scene.gap(scene.chance.uniform(6, 15) * MINUTE)
    scene.phase(3 * HOUR, active=False)
    use(scene)


def unreadable(*names: str) -> Signals:
    return lambda _, __: {name: Reading(None, what="not supported") for name in names}


def training(chance: random.Random, at: float) -> Values:
    """An hour of it, then ten minutes in which a checkpoint is written, over and over."""
    if at % (70 * MINUTE) > HOUR:
        return {"io": 4e7, "cpu": 0.3}
    return {
        "gpu": chance.choice((60.0, 87.0, 99.0)),
        "gpu-memory": 40.0,
        "gpu-pcie": 3e8,
        "cpu": 1.1,
    }


PLAYS: dict[str, Play] = {
    # left, whatever still moves
    "abandoned": left_with(),
    "vram-held": left_with(steady(gpu_pcie=900.0)),
    "tensorboard-left-open": left_with(steady(cpu=0.003, io=10, network=700)),
    "open-tab": left_with(steady(cpu=0.012, network=1800)),
    "dead-ssh": left_with(steady(network=5)),
    "tmux-detached": left_with(steady(cpu=0.003)),
    "watch-date": left_with(steady(cpu=0.011)),
    "top-left-open": left_with(steady(cpu=0.0003)),
    "vscode-disconnected": left_with(
        now_and_then(300, {"cpu": 0.012, "io": 2e3}, {"cpu": 0.04, "io": 3e4})
    ),
    "rstudio-left": left_with(steady(cpu=0.006, network=900)),
    "debugger-at-prompt": left_with(steady(cpu=0.002)),
    "waits-for-a-file": left_with(steady(cpu=0.002)),
    "raw-kernel-left": left_with(steady(cpu=0.004)),
    "input-waiting": left_with(busy(cpu=0.002)),
    # its owner is there
    "reading": present((0.5, 20), None),
    "thinking-between-cells": present(None, (2, 35)),
    "editing": present((0.05, 6), (5, 40)),
    # work goes on without its owner
    "long-silent-cell": working_by(busy(cpu=0.002)),
    "remote-dask": working_by(busy(cpu=0.01, network=900)),
    "cell-on-gpu": working_by(busy(gpu=85, gpu_memory=40, cpu=1.0)),
    "thread": working_by(steady(cpu=0.7)),
    "child": working_by(steady(cpu=1.0, io=3e4)),
    "nohup": working_by(steady(cpu=0.97)),
    "download": working_by(steady(network=4e5, io=4e5, cpu=0.02)),
    "slow-download": working_by(steady(network=4e4, io=4e4, cpu=0.004)),
    "upload": working_by(steady(network=1e6, cpu=0.03)),
    "data-loader": working_by(steady(cpu=3.0, io=5e7)),
    "gpu-burst-each-40s": working_by(steady(gpu=97, cpu=0.01)),
    "gpu-memory-only": working_by(steady(gpu_memory=35)),
    "gpu-codec-only": working_by(steady(gpu_codec=50)),
    "gpu-pcie-only": working_by(steady(gpu_pcie=4e9)),
    "training-with-checkpoints": working_by(training),
    "directory-walk": working_by(steady(cpu=0.12, io=500)),
    "vscode-terminal-job": working_by(steady(cpu=0.8)),
    "raw-kernel-at-work": working_by(steady(gpu=40, cpu=0.5)),
    # doubt
    "gpu-not-readable": working_by(unreadable("gpu", "gpu-memory", "gpu-codec")),
    "agent-away": lost_agent,
    # people come back
    "coffee": away_for(5, 40),
    "lunch": away_for(46, 59),
    "meeting": away_for(50, 120),
}

HARD: dict[str, Play] = {
    # An API is asked every few seconds by a script in a terminal: less than an open tab moves.
    "trickle": working_by(steady(cpu=0.006, network=2500)),
    # An owner who reads in the browser for two hours without a key or a cell.
    "reading-in-browser": lambda scene: (
        use(scene), scene.phase(2 * HOUR, active=True), use(scene),
    )[0],
}  # fmt: skip


def entries(
    rounds: int = 1, seed: int = 1, plays: dict[str, Play] | None = None, step: float = 60.0
) -> Iterator[Entry]:
    """Every behaviour `rounds` times, each with its own chance."""
    note = f"synthetic, by construction: tests/traces/behaviours.py, seed {seed}"
    yield Header("synthetic", note, by_session=True, complete=True)
    for number in range(rounds):
        for name, play in (PLAYS if plays is None else plays).items():
            scene = Scene(f"{name}-{number + 1}", name, random.Random(f"{seed} {name} {number}"))
            scene.step = step
            play(scene)
            yield from scene.entries()
