"""Jupyter among a job's processes: looked for when they have changed, as the census tells."""

from __future__ import annotations

import os
import sys
from functools import partial

import pytest

from slurm_reclaim.adapters.jupyter import processes
from slurm_reclaim.adapters.jupyter.meter import JupyterMeter
from slurm_reclaim.adapters.proc.census import Census
from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon import node_meters
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living

KERNEL = [sys.executable, "-c", "import time; print(flush=True); time.sleep(1000)", "kernel-1.json"]


@pytest.fixture
def record(session, monkeypatch):
    monkeypatch.setattr(node_meters, "Census", partial(Census, old=0.0))
    one = session()
    made = NodeSession(1, 0, 0, 0, "fresh", Living.RUNNING, init=one.init, relay=one.relay)
    if not node_meters.census(made).clock.counts:
        pytest.skip("no cgroup counts CPU time")
    return one, made


def test_what_starts_is_seen_and_who_sleeps_costs_nothing(record, monkeypatch):
    one, known = record
    monkeypatch.setattr(processes, "RESCAN", 0.0)
    every = node_meters.meters(known, Config())
    (meter,) = [m for m in every if isinstance(m, JupyterMeter)]

    def read():
        return [m.read(1.0) for m in every][every.index(meter)]

    assert [read(), read()] == [{}, {}]
    listed = []
    listdir = os.listdir
    monkeypatch.setattr(processes.os, "listdir", lambda at: listed.append(at) or listdir(at))
    assert meter.read(1.0) == {}
    assert listed == []
    one.run(f"it = subprocess.Popen({KERNEL!r}, stdout=subprocess.PIPE); it.stdout.readline()")
    (reading,) = read().values()
    assert "without a server: python" in reading.what
    assert listed != []
