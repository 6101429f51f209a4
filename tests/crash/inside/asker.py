"""Speaks with reclaimd as the command line does, one question a line, without a start of Python for
each: `GET path` or `POST path` with a JSON body after it; answers with a line of JSON each."""

import asyncio
import json
import sys
from typing import Any

from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.adapters.transport.munge import Munge
from slurm_reclaim.config.load import load
from slurm_reclaim.errors import ReclaimError


async def answer(config, line: str) -> object:
    verb, path, *body = line.split(" ", 2)
    try:
        async with ControllerClient(config, Munge(), timeout=5.0) as controller:
            if verb == "GET":
                return await controller.get(path, Any)
            return await controller.post(path, json.loads(body[0]), Any)
    except ReclaimError as error:
        return {"error": error.message, "kind": type(error).__name__}


def main() -> None:
    config = load()
    for line in sys.stdin:
        print(json.dumps(asyncio.run(answer(config, line.strip()))), flush=True)


main()
