"""Read the Jupyter meter of a job's session on this node, as the agent does.

meter.py JOB [READS [SECONDS]]: so many readings, that long apart, by one meter; one JSON a line.
"""

import json
import sys
import time
from pathlib import Path

import msgspec

from slurm_reclaim.adapters.jupyter.meter import JupyterMeter
from slurm_reclaim.model.node_session import NodeSession


def session(job):
    for path in Path("/var/lib/slurm-reclaim/sessions").iterdir():
        record = msgspec.json.decode(path.read_bytes(), type=NodeSession, strict=False)
        if record.job_id == job:
            return record
    raise SystemExit(f"no session of job {job} on this node")


job, reads, pause = (int(word) for word in [*sys.argv[1:], "1", "1"][:3])
meter = JupyterMeter(session(job))
for number in range(reads):
    if number:
        time.sleep(pause)
    began, cpu = time.monotonic(), time.process_time()
    readings = meter.read(pause)
    said = {name: msgspec.to_builtins(reading) for name, reading in readings.items()}
    print(
        json.dumps(
            {
                **said.get("jupyter", {"absent": True}),
                "took": round(time.monotonic() - began, 4),
                "cpu": round(time.process_time() - cpu, 5),
            }
        ),
        flush=True,
    )
