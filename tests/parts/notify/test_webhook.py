from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import socket
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from slurm_reclaim.adapters.notify import webhook
from slurm_reclaim.model.notice import Channel

from .conftest import Make, deliver, notice, server_context


class Hub:
    """Answers every path with `status`, and keeps what it got."""

    def __init__(self) -> None:
        self.status, self.body, self.headers = 204, "", {}
        self.got: list[tuple[str, str, dict[str, str], bytes]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.got.append((request.method, request.path, dict(request.headers), await request.read()))
        if request.path == "/slow":
            await asyncio.sleep(60)
        if request.path == "/endless":
            response = web.StreamResponse(status=500)
            await response.prepare(request)
            while True:
                await response.write(b"x" * 65536)
        return web.Response(status=self.status, text=self.body, headers=self.headers)


@pytest_asyncio.fixture
async def hub():
    """A started Hub; `hub.url` has no path."""
    runners = []

    async def start(context=None) -> Hub:
        made = Hub()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", made.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        runners.append(runner)
        scheme = "https" if context else "http"
        made.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
        return made

    yield start
    for runner in runners:
        await runner.cleanup()


async def test_the_notice_arrives_as_json(make: Make, hub) -> None:
    there = await hub()
    (done,) = await deliver(make(channels=["webhook"], webhook=there.url + "/T0KEN?a=b"))
    assert (done.channel, done.ok, done.to, done.error) == (Channel.WEBHOOK, True, there.url, "")
    method, path, headers, body = there.got[0]
    assert (method, path, headers["Content-Type"]) == ("POST", "/T0KEN", "application/json")
    assert webhook.SIGNATURE not in headers
    said = json.loads(body)
    assert said["sent"] > 1e9
    assert said["subject"].startswith("Session 12 will be")
    assert "reclaim keep 12" in said["text"]
    del said["sent"], said["subject"], said["text"]
    assert said == {
        "version": 1, "id": "0123456789abcdef", "kind": "warning", "cluster": "lab", "job": "12",
        "job_id": 12, "job_name": "notebook", "user": "alice", "uid": 2001, "node": "n1",
        "partition": "", "account": "", "rule": "", "reason": "nothing was seen for 45m",
        "deadline": 4e9, "idle": 2700.0, "vram": 38 << 30, "tres": "",
    }  # fmt: skip


async def test_signed_over_time_and_body(make: Make, hub, tmp_path: Path) -> None:
    there = await hub()
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    config = make(channels=["webhook"], webhook=there.url, webhook_secret=str(secret))
    (done,) = await deliver(config)
    assert done.ok
    _, _, headers, body = there.got[0]
    fields = dict(part.split("=") for part in headers[webhook.SIGNATURE].split(","))
    message = fields["t"].encode() + b"." + body
    assert fields["v1"] == hmac.new(b"s3cret", message, hashlib.sha256).hexdigest()
    assert abs(int(fields["t"]) - json.loads(body)["sent"]) <= 1


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda p: p.chmod(0o640), "is 0640; nobody but its owner may read it"),
        (lambda p: p.chmod(0o604), "is 0604"),
        (lambda p: os.chown(p, 4711, -1), "belongs to uid 4711"),
        (lambda p: p.write_text("\n"), "is empty"),
        (lambda p: p.write_text("x" * 5000), "is longer than 4 KiB"),
        (lambda p: p.unlink(), "can't be read: No such file"),
        (lambda p: (p.unlink(), os.mkfifo(p, 0o600)), "is no regular file"),
    ],
)
async def test_without_a_good_secret_nothing_is_sent(
    make: Make, hub, tmp_path: Path, spoil, problem: str
) -> None:
    there = await hub()
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    spoil(secret)
    config = make(channels=["webhook"], webhook=there.url, webhook_secret=str(secret))
    (done,) = await deliver(config)
    assert not done.ok
    assert str(secret) in done.error
    assert problem in done.error
    assert there.got == []


async def test_only_2xx_is_a_delivery(make: Make, hub) -> None:
    there = await hub()
    config = make(channels=["webhook"], webhook=there.url)
    there.status, there.body = 500, "\x1b[2Jout of order\nat line 7"
    (done,) = await deliver(config)
    assert (done.ok, done.error) == (False, "500 Internal Server Error: ?[2Jout of order")
    there.status, there.headers = 302, {"Location": there.url + "/elsewhere"}
    (done,) = await deliver(config)
    assert (done.ok, done.error) == (False, "302 Found; redirects are not followed")
    assert [path for _, path, _, _ in there.got] == ["/", "/"]


@pytest.mark.parametrize(
    ("path", "problem"), [("/slow", "no answer within 1 s"), ("/endless", "500")]
)
async def test_a_slow_or_endless_answer_is_given_up(
    make: Make, hub, path: str, problem: str
) -> None:
    there = await hub()
    begin = asyncio.get_running_loop().time()
    (done,) = await deliver(make(channels=["webhook"], webhook=there.url + path, timeout=1.0))
    assert asyncio.get_running_loop().time() - begin < 30
    assert not done.ok
    assert done.error.startswith(problem)
    assert len(done.error) <= 300


async def test_no_server(make: Make) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://user:pass@127.0.0.1:{unused.getsockname()[1]}/T0KEN"
        (done,) = await deliver(make(channels=["webhook"], webhook=url))
    assert not done.ok
    assert "refused" in done.error
    assert "T0KEN" not in f"{done.to} {done.error}"
    assert "pass" not in f"{done.to} {done.error}"


async def test_certificates_are_verified(make: Make, hub, authority) -> None:
    good = await hub(server_context(authority, "127.0.0.1"))
    (done,) = await deliver(make(channels=["webhook"], webhook=good.url))
    assert (done.ok, done.error) == (True, "")
    wrong = await hub(server_context(authority, "other.example"))
    (done,) = await deliver(make(channels=["webhook"], webhook=wrong.url + "/T0KEN"))
    assert not done.ok
    assert "certificate" in done.error
    assert "T0KEN" not in done.error
    assert wrong.got == []


async def test_hostile_names_are_json(make: Make, hub) -> None:
    there = await hub()
    name = 'x"}\n\x1b[2J\udcff' + "y" * 300
    (done,) = await deliver(
        make(channels=["webhook"], webhook=there.url), notice(job_name=name, user=name)
    )
    assert done.ok
    said = json.loads(there.got[0][3])
    assert said["user"] == name.replace("\udcff", "\\udcff")
    assert "\x1b" not in said["text"] + said["subject"]


@pytest.mark.parametrize("url", ["", "ftp://x/", "http://", "http://[::1", "nonsense"])
async def test_no_url_is_no_exception(make: Make, url: str) -> None:
    (done,) = await deliver(make(channels=["webhook"], webhook=url))
    assert not done.ok
    assert done.error
    assert "internal error" not in done.error
