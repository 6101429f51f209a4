"""Measure the sessions of this node as its agent does, beside the agent, and print the samples.

samples.py JOB SECONDS [LOOKS]: after a first look, LOOKS samples of SECONDS each. Prints JSON.
"""

import json
import logging
import sys
import time
from dataclasses import asdict
from pathlib import Path

from slurm_reclaim.adapters.store.records import SessionRecords
from slurm_reclaim.config.load import load
from slurm_reclaim.config.schema import DEFAULT_FILE
from slurm_reclaim.daemon.node_samples import NodeSamples


def main():
    logging.basicConfig(level="WARNING")
    job, seconds = int(sys.argv[1]), float(sys.argv[2])
    looks = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    config = load(DEFAULT_FILE)
    records = SessionRecords(Path(config.agent.state) / "sessions").load()
    (session,) = [record for record in records if record.job_id == job]
    samples = NodeSamples(lambda: config)
    samples.take([session], ())
    for _ in range(looks):
        time.sleep(seconds)
        samples.take([session], ())
    print(json.dumps([asdict(sample) for sample in samples.of(session).samples]))


main()
