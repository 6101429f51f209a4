"""Speaks to reclaimd in the name of a node's agent, and says untrue things; prints the answer.

forger.py committed|orders|start|request:HOW NODE JOB SESSION
"""

import asyncio
import json
import sys
import time

from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.adapters.transport.credential import SCHEME, RequestClaim, digest, seal
from slurm_reclaim.adapters.transport.http import HttpClient
from slurm_reclaim.adapters.transport.munge import Munge
from slurm_reclaim.adapters.transport.wire import encode
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


async def forged(how, job):
    """A request as its maker claims it to be; what is said of who makes it, he can't change."""
    config, munge = load(), Munge()
    path, body = f"/v1/sessions/{job}/restore", b"{}"
    if how == "as-root":
        path = "/v1/agent/report"
        told = Report("n2", "boot", time.time(), NodeFacts())
        body = encode(told)
    host = "elsewhere" if how == "other-controller" else config.controller.host
    claim = RequestClaim(
        host,
        "POST",
        "/v1/status" if how == "other-path" else path,
        digest(b'{"x": 1}' if how == "other-body" else body),
        time.time() - (3600 if how == "old" else 0),
    )
    credential = seal(munge, claim)
    if how == "bent":
        middle = len(credential) // 2
        bent = "A" if credential[middle] != "A" else "B"
        credential = credential[:middle] + bent + credential[middle + 1 :]
    if how == "made-up":
        credential = "MUNGE:AAAA:"
    http = HttpClient(config.controller.host, config.controller.port)
    headers = {"Authorization": SCHEME + credential, "Content-Type": "application/json"}
    answer = await http.ask("POST", path, headers, body, 20.0)
    if how == "replayed":
        answer = await http.ask("POST", path, headers, body, 20.0)
    await http.close()
    print(answer.body.decode())


async def main(what, node, job, session):
    if what.startswith("request:"):
        await forged(what.partition(":")[2], job)
        return
    path, body = request(what, node, int(job), session)
    async with ControllerClient(load(), Munge()) as controller:
        try:
            print(json.dumps(await controller.post(path, body, dict | list)))
        except ReclaimError as error:
            print(json.dumps({"error": type(error).__name__, "message": error.message}))


asyncio.run(main(*sys.argv[1:]))
