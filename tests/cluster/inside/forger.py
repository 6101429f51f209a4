"""Speaks to reclaimd in the name of a node's agent, and says untrue things; prints the answer.

forger.py committed|orders|start NODE JOB SESSION
"""

import asyncio
import json
import sys
import time

from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.adapters.transport.munge import Munge
from slurm_reclaim.config.load import load
from slurm_reclaim.errors import ReclaimError
from slurm_reclaim.model.order import (
    Living,
    NodeFacts,
    Report,
    SessionReport,
    StartQuestion,
)

UID = 2001


def request(what, node, job, session):
    if what == "committed":
        told = SessionReport(
            job,
            UID,
            0,
            Living.COMMITTED,
            session,
            checkpoint=0,
            checkpoint_bytes=1,
            reason="forged",
        )
        return "/v1/agent/report", Report(node, "boot", time.time(), NodeFacts(), (told,))
    if what == "orders":
        return "/v1/agent/orders", {"node": node, "wait": 0.0, "known": []}
    return "/v1/agent/start", StartQuestion(node, job, UID, NodeFacts())


async def main(what, node, job, session):
    path, body = request(what, node, int(job), session)
    async with ControllerClient(load(), Munge()) as controller:
        try:
            print(json.dumps(await controller.post(path, body, dict | list)))
        except ReclaimError as error:
            print(json.dumps({"error": type(error).__name__, "message": error.message}))


asyncio.run(main(*sys.argv[1:]))
