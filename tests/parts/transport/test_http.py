"""Client and server over a real socket; only munged is a stand-in."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.adapters.transport.credential import (
    ANSWER_HEADER,
    AnswerClaim,
    RequestClaim,
    digest,
    seal,
)
from slurm_reclaim.adapters.transport.server import MOST_BYTES, Ask, Server
from slurm_reclaim.adapters.transport.wire import body_of, error_of
from slurm_reclaim.config.schema import Config, Controller
from slurm_reclaim.errors import (
    AuthUnavailable,
    BadRequest,
    ConfigError,
    ControllerUnavailable,
    CredentialRefused,
    NotReclaimable,
    ReclaimError,
    WrongState,
)
from slurm_reclaim.model.order import NodeFacts, Report
from tests.unit.transport.standin import StandInMunge, StandInMunged


@dataclass
class Place:
    """A server and a client. The server runs as root, as far as MUNGE is concerned."""

    munged: StandInMunged = field(default_factory=StandInMunged)
    server_uid: int = 0
    asked: list[Ask] = field(default_factory=list)
    answer: object = field(default_factory=lambda: {"n": 1})
    port: int = field(default_factory=unused_port)

    async def serve(self, host: str = "127.0.0.1") -> web.AppRunner:
        server = Server(host, StandInMunge(self.munged, self.server_uid))
        server.route("GET", "/v1/x/{job}", self._respond)
        server.route("POST", "/v1/x", self._respond)
        server.close_routes()
        runner = server.runner()
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        return runner

    async def _respond(self, ask: Ask) -> object:
        self.asked.append(ask)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def client(self, uid: int = 2001, user: str = "nobody") -> ControllerClient:
        config = Config(controller=Controller(host="127.0.0.1", port=self.port, user=user))
        return ControllerClient(config, StandInMunge(self.munged, uid), timeout=5)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    place = Place()
    runner = await place.serve()
    yield place
    await runner.cleanup()


async def test_there_and_back(place: Place) -> None:
    async with place.client() as client:
        assert await client.get("/v1/x/12_3?a=%20b%2B", dict[str, int]) == {"n": 1}
        facts = Report("n1", "b", 1.5, NodeFacts(arch="é"))
        assert await client.post("/v1/x", facts, dict[str, int]) == {"n": 1}
    first, second = place.asked
    assert (first.caller.uid, first.match, first.query) == (2001, {"job": "12_3"}, {"a": " b+"})
    assert json.loads(second.body)["facts"]["arch"] == "é"


async def test_errors_keep_their_kind_words_and_code(place: Place) -> None:
    async with place.client() as client:
        for error in (WrongState("no", hint="why"), NotReclaimable("n"), ReclaimError("odd")):
            place.answer = error
            with pytest.raises(ReclaimError) as caught:
                await client.get("/v1/x/1", dict)
            assert type(caught.value) is type(error)
            assert (caught.value.message, caught.value.hint) == (error.message, error.hint)
        place.answer = ZeroDivisionError("secret")
        with pytest.raises(ReclaimError, match="internal error") as caught:
            await client.get("/v1/x/1", dict)
        assert caught.value.exit_code == 10
        with pytest.raises(BadRequest):
            await client.get("/v1/nothing", dict)
        # Refused before the credential is looked at, so the answer can't be signed.
        with pytest.raises(AuthUnavailable, match="larger"):
            await client.post("/v1/x", "a" * MOST_BYTES, dict)


def test_every_error_survives_the_wire() -> None:
    for error in (ConfigError(["a", "b"], hint="h"), BadRequest("x"), CredentialRefused("y")):
        back = error_of(body_of(error))
        assert (type(back), back.message, back.hint) == (type(error), error.message, error.hint)
    unknown = error_of(type(body_of(BadRequest("")))("NewError", "m", "h", 99))
    assert (unknown.message, unknown.exit_code) == ("m", 99)


async def test_nobody_there() -> None:
    async with Place().client() as client:
        with pytest.raises(ControllerUnavailable, match=r"can't be reached: Connection refused$"):
            await client.get("/v1/x/1", dict)


async def test_a_name_that_is_no_hosts() -> None:
    nowhere = Config(controller=Controller(host="nowhere.invalid"))
    async with ControllerClient(nowhere, StandInMunge(StandInMunged(), 1000)) as client:
        with pytest.raises(ControllerUnavailable, match=r"can't be reached: [A-Z][a-z ]+$"):
            await client.get("/v1/x/1", dict)


async def test_munged_down_on_either_side(place: Place) -> None:
    async with place.client() as client:
        place.munged.down = True
        with pytest.raises(AuthUnavailable, match="did not make"):
            await client.get("/v1/x/1", dict)
    place.munged.down = False
    answer = await raw(place, authorization="MUNGE MUNGE:nonsense:")
    assert answer == (401, "")
    assert not place.asked


async def raw(place: Place, authorization: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{place.port}/v1/x/1"
    headers = {"Authorization": authorization} if authorization else {}
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
        return answer.status, answer.headers.get(ANSWER_HEADER, "")


async def test_without_credential_nothing_is_asked(place: Place) -> None:
    assert await raw(place, "") == (401, "")
    assert not place.asked


async def test_a_replayed_request_is_refused(place: Place) -> None:
    sent: list[str] = []
    munge = StandInMunge(place.munged, 2001)

    class Recording(StandInMunge):
        def encode(self, payload: bytes) -> str:
            sent.append(munge.encode(payload))
            return sent[-1]

    config = Config(controller=Controller(host="127.0.0.1", port=place.port))
    async with ControllerClient(config, Recording(place.munged)) as client:
        await client.get("/v1/x/1", dict)
    assert (await raw(place, f"MUNGE {sent[0]}"))[0] == 401
    assert len(place.asked) == 1


async def test_another_controllers_name_is_said(place: Place) -> None:
    other = Place(munged=place.munged)
    runner = await other.serve(host="elsewhere")
    async with other.client() as client:
        with pytest.raises(AuthUnavailable, match="signed for the controller"):
            await client.get("/v1/x/1", dict)
    await runner.cleanup()


async def test_only_root_and_the_controllers_account_are_believed(place: Place) -> None:
    import pwd

    nobody = pwd.getpwnam("nobody").pw_uid
    for uid, believed in ((0, True), (nobody, True), (2002, False)):
        other = Place(munged=place.munged, server_uid=uid)
        runner = await other.serve()
        async with other.client(user="nobody") as client:
            if believed:
                assert await client.get("/v1/x/1", dict[str, int]) == {"n": 1}
            else:
                with pytest.raises(CredentialRefused, match="signed by uid 2002"):
                    await client.get("/v1/x/1", dict)
        await runner.cleanup()


@pytest.mark.parametrize("trick", ["none", "old", "body", "status"])
async def test_an_impostor_on_the_port_gives_no_orders(trick: str) -> None:
    place = Place()
    root = StandInMunge(place.munged, 0)

    async def impostor(request: web.Request) -> web.Response:
        body = b'{"n": 2}'
        claims = {
            "old": AnswerClaim("another nonce", 200, digest(body)),
            "body": AnswerClaim(nonce(request), 200, digest(b'{"n": 1}')),
            "status": AnswerClaim(nonce(request), 409, digest(body)),
        }
        headers = {ANSWER_HEADER: seal(root, claims[trick])} if trick in claims else {}
        return web.Response(body=body, headers=headers)

    def nonce(request: web.Request) -> str:
        credential = request.headers["Authorization"].removeprefix("MUNGE ")
        return str(json.loads(place.munged.made[credential].payload)["nonce"])

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", impostor)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", place.port).start()
    async with place.client() as client:
        with pytest.raises(AuthUnavailable):
            await client.get("/v1/x/1", dict[str, int])
    await runner.cleanup()


async def test_an_answer_of_another_shape(place: Place) -> None:
    async with place.client() as client:
        with pytest.raises(ControllerUnavailable, match="can't be read") as caught:
            await client.get("/v1/x/1", list[int])
        assert "same version" in caught.value.hint


def test_a_uid_without_account_has_no_name() -> None:
    from slurm_reclaim.adapters.transport.server import _account

    assert _account(3_999_999) == ""
    assert _account(os.getuid())


async def test_who_asks_comes_before_what(place: Place) -> None:
    """What somebody sends whom nobody knows is not waited for, and not kept."""
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n{")
    await writer.drain()
    said = await asyncio.wait_for(reader.readline(), 5)
    assert said.startswith(b"HTTP/1.1 401 ")
    writer.close()
    assert not place.asked


MALFORMED = (
    b"\x00\xff" * 100 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 100_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
)


@pytest.mark.parametrize("raw", MALFORMED)
async def test_what_is_no_request_fills_no_log(
    place: Place, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is known to have sent it, and anybody can send thousands a second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(raw)
    assert (await reader.read(2000)).startswith(b"HTTP/1.0 400")
    writer.close()
    assert caplog.records == []


@pytest.mark.parametrize(
    "body", [b"Content-Length: 10\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"]
)
async def test_a_request_that_breaks_off_fills_no_log(
    place: Place, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    claim = RequestClaim("127.0.0.1", "POST", "/v1/x", digest(b""), time.time())
    sealed = seal(StandInMunge(place.munged, 2001), claim)
    head = f"POST /v1/x HTTP/1.1\r\nHost: x\r\nAuthorization: MUNGE {sealed}\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(head.encode() + body)
    await writer.drain()
    await asyncio.sleep(0.2)
    writer.close()
    await asyncio.sleep(0.3)
    assert caplog.records == []
    assert place.asked == []
