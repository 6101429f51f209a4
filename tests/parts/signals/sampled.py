"""Meters that say what a test wants, and the samples that are made of them."""

from __future__ import annotations

import threading

from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon.node_samples import NodeSamples
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living
from slurm_reclaim.model.sample import GpuHeld, Reading

CPU, JUPYTER = "cpu", "jupyter"


class Steady:
    """Says the same every time."""

    def __init__(self, name=CPU, value=1.0, what=""):
        self.name, self.value, self.what = name, value, what
        self.asked = []

    def read(self, seconds):
        self.asked.append(seconds)
        if isinstance(self.value, Exception):
            raise self.value
        return {self.name: Reading(self.value, what=self.what)}

    def held(self):
        return [GpuHeld("GPU-1", "H200", 0)] if self.name == "gpu" else []


class Hanging(Steady):
    """Does not answer from its second question on, until it is let go."""

    def __init__(self, name=JUPYTER):
        super().__init__(name)
        self.free = threading.Event()
        self.inside = 0

    def read(self, seconds):
        if self.asked:
            self.inside += 1
            self.free.wait(60)
            self.inside -= 1
        return super().read(seconds)


def session(job=1, **changes):
    values = {"living": Living.RUNNING, "init": 10 + job, "init_start": 1}
    return NodeSession(job, 2001, 2001, 0, "fresh", **(values | changes))


class World:
    def __init__(self, *meters, limit=5.0):
        self.meters = list(meters)
        self.made = 0
        self.samples = NodeSamples(Config, self._make, limit)

    def _make(self, session, config):
        self.made += 1
        return self.meters

    def take(self, *sessions, busy=()):
        self.samples.take(sessions, busy)

    def of(self, one):
        return self.samples.of(one).samples
