"""A stand-in controller on loopback, and a stand-in for munged: the commands talk to a real HTTP
server with signed requests and answers, scripted by a test."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from slurm_reclaim.adapters.transport import credential
from slurm_reclaim.adapters.transport.munge import Decoded
from slurm_reclaim.adapters.transport.wire import body_of, encode
from slurm_reclaim.errors import AuthUnavailable, NotManaged, ReclaimError

# A request (method, path, body) is answered by a value or an error.
Answer = Callable[[], object]


@dataclass
class StandInMunge:
    """Says for everybody that it was `uid`."""

    uid: int = field(default_factory=os.geteuid)
    broken: bool = False

    def encode(self, payload: bytes) -> str:
        if self.broken:
            raise AuthUnavailable("munged did not make a credential", hint="is munged running?")
        return f"{self.uid}:" + base64.b64encode(payload).decode()

    def decode(self, text: str) -> Decoded:
        uid, _, payload = text.partition(":")
        return Decoded(base64.b64decode(payload), int(uid), int(uid))


class Controller:
    """`answers`: (method, path without query) -> what to answer; a list is used up from the front
    and its last entry repeats. `asked`: every (method, path with query, body)."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], list[object]] = {}
        self.asked: list[tuple[str, str, object]] = []
        self.signer = StandInMunge(uid=0)
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def stop(self) -> None:
        assert self._runner is not None
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        claim, _ = credential.open_request(self.signer, request.headers["Authorization"])
        self.asked.append((request.method, request.path_qs, json.loads(body) if body else None))
        script = self.answers.get((request.method, request.path))
        answer: object = NotManaged("no such job is managed", hint="reclaim list shows yours")
        if script:
            answer = script.pop(0) if len(script) > 1 else script[0]
        status = 200
        if isinstance(answer, ReclaimError):
            status, answer = 409, body_of(answer)
        content = encode(answer)
        signed = credential.AnswerClaim(claim.nonce, status, credential.digest(content))
        return web.Response(
            status=status,
            body=content,
            headers={credential.ANSWER_HEADER: credential.seal(self.signer, signed)},
        )
