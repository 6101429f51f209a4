"""Runs on a node, with the agent's Python: measures the session of the given job as the
agent would, once NVML has answered, and prints what it got."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from slurm_reclaim.adapters.gpu.meter import gpu_meter
from slurm_reclaim.adapters.store.records import SessionRecords
from slurm_reclaim.config.schema import Config

job = int(sys.argv[1])
sessions = SessionRecords(Path("/var/lib/slurm-reclaim/sessions")).load()
session = next(one for one in sessions if one.job_id == job)
meter = gpu_meter(session, Config())
found = {"grant": session.gpus and asdict(session.gpus), "child": session.child}
if meter is not None:
    deadline = time.monotonic() + 20
    readings = meter.read(10)
    while readings["gpu"].what == "NVML is starting" and time.monotonic() < deadline:
        time.sleep(0.2)
        readings = meter.read(10)
    found["readings"] = {name: [one.value, one.what] for name, one in readings.items()}
    found["held"] = [asdict(one) for one in meter.held()]
print(json.dumps(found))
