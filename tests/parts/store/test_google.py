"""What is Google's own: its tokens, its errors, its lists in pages, its uploads."""

from __future__ import annotations

import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from slurm_reclaim.adapters.store import bucket as buckets
from slurm_reclaim.adapters.store.bucket import Bucket, Denied
from slurm_reclaim.errors import StoreUnavailable
from tests.parts.store.cloud import DATA, PREFIX, gets, patience, puts
from tests.parts.store.kept_away import three, whole
from tests.parts.store.world import ID

pytestmark = pytest.mark.parametrize("cloud", ["gs"], indirect=True)


def soon():
    return time.monotonic() + 20


def sent(cloud, tmp_path, data, name="x"):
    path = tmp_path / "sent"
    path.write_bytes(data)
    cloud.bucket().put(name, path, soon())
    return cloud.direct.take(name, len(data), soon())


@pytest.mark.parametrize("size", [0, 1, 300_000, (1 << 20) + 1])
def test_any_bytes_can_be_stored(cloud, tmp_path, size):
    """Also those that gcsfs's own small uploads would end with."""
    data = os.urandom(size) + b"\n--==0==\nContent-Type: text/plain\n\n?\n--==0==--\r\n" * bool(
        size
    )
    assert sent(cloud, tmp_path, data) == data
    cloud.direct.write("y", data, soon())
    assert cloud.direct.take("y", len(data), soon()) == data


def test_an_upload_that_the_server_forgot_begins_anew(cloud, tmp_path, monkeypatch):
    monkeypatch.setattr("slurm_reclaim.adapters.store.checksums.PART", 5 << 20)
    forgotten = cloud.proxy.fail(on=lambda method, path: method == "PUT", times=1, status=404)
    data = os.urandom(12 << 20)
    assert sent(cloud, tmp_path, data) == data
    assert forgotten.seen == 1
    assert [m for m, p in cloud.proxy.requests if p.endswith("/x")].count("POST") == 2


def test_of_a_part_that_arrives_by_half_the_rest_is_sent(cloud, tmp_path, monkeypatch):
    monkeypatch.setattr("slurm_reclaim.adapters.store.checksums.PART", 5 << 20)
    cut = cloud.proxy.fail(on=lambda method, path: method == "PUT", times=1, short_up=True)
    data = os.urandom(12 << 20)
    assert sent(cloud, tmp_path, data) == data
    assert cut.seen == 1


@pytest.mark.parametrize("status", [403, 401, 500, 503])
def test_a_question_is_asked_once_and_the_reason_is_said(cloud, monkeypatch, status):
    bucket = cloud.bucket()
    bucket.connect()
    cloud.proxy.fail(status=status, code="backendError")
    for ask in (lambda: bucket.list("lab/"), lambda: bucket.look("x"), lambda: bucket.read("x")):
        bucket._quiet_until = 0.0
        with pytest.raises(
            StoreUnavailable, match=f"{status}.*backendError|backendError.*{status}"
        ):
            ask()
    # An object that may not be looked at is looked for in a list.
    assert len(cloud.proxy.requests) == (4 if status == 403 else 3)


def test_a_refusal_is_not_tried_again(cloud, tmp_path):
    refused = cloud.proxy.fail(on=puts("/x"), status=403)
    with pytest.raises(Denied, match="403"):
        sent(cloud, tmp_path, b"data")
    assert refused.seen == 1


def test_a_bucket_that_is_not_there_is_not_an_empty_one(cloud):
    bucket = Bucket("gs://not-there/prefix", cloud.options(cloud.proxy.url))
    for ask in (
        lambda: bucket.list("lab/"),
        lambda: bucket.look_through("lab/", soon()),
        lambda: bucket.folders(soon()),
        lambda: bucket.write("x", b"", soon()),
    ):
        with pytest.raises(Denied, match="no such bucket"):
            ask()


def test_a_list_in_pages_is_whole_or_none(cloud):
    three(cloud)
    found = cloud.direct.list("lab/", 10)
    cloud.proxy.page = 3
    assert len(found) > 2 * cloud.proxy.page
    collection = cloud.node("n2").collection()
    (mine,), _ = collection.catalogue()
    assert [c.restarts for c in mine.checkpoints] == [0, 1, 2]
    assert collection._bucket.list("lab/", 10) == found
    pages = iter([False, True])
    cloud.proxy.fail(
        on=lambda m, p: gets("")(m, p) and "/lab/" not in p and next(pages, True), status=500
    )
    with pytest.raises(StoreUnavailable):
        collection._bucket.list("lab/", 10)


def test_where_no_checksum_is_told_the_bytes_are_compared(cloud, tmp_path):
    cloud.proxy.hidden = ("md5Hash", "etag")
    cut = cloud.proxy.fail(on=puts("/packs/"), times=1, short_up=True)
    (pack,) = cloud.node("n1").put(0, {"pages-1.img": DATA}).packs
    assert cut.seen == 1
    assert ("GET", f"/{cloud.direct._root}/{PREFIX}packs/{pack.path}") in cloud.proxy.requests
    assert sent(cloud, tmp_path, b"these") == b"these"
    assert sent(cloud, tmp_path, b"those") == b"those"
    whole(cloud, 0)
    assert cloud.node("n2").get(0, "pages-1.img") == DATA


def test_silence_ends_within_its_time(cloud, monkeypatch):
    patience(monkeypatch, 1.0)
    one = cloud.node("n1")
    one.store.bucket.connect()
    cloud.proxy.fail(wait=20.0)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        one.store.committed(ID)
    assert time.monotonic() - began < 5


# -- tokens ------------------------------------------------------------------------------------


@pytest.fixture
def account(tmp_path):
    """A service account's file, and the server that gives tokens for it."""

    class Tokens(BaseHTTPRequestHandler):
        answer: tuple[int, dict] = (200, {"access_token": "t0ken", "expires_in": 3600})

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            status, said = self.answer
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Tokens)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path / "gcs.json"
    path.write_text(json.dumps({
        "type": "service_account", "client_email": "reclaim@lab", "private_key": key.decode(),
        "private_key_id": "k", "token_uri": f"http://127.0.0.1:{server.server_port}/token",
    }))  # fmt: skip
    yield str(path), Tokens
    server.shutdown()
    server.server_close()


def with_account(cloud, path):
    return Bucket(cloud.url, cloud.options(cloud.proxy.url) | {"token": path})


def test_the_token_of_a_service_account_is_sent(cloud, account):
    path, _ = account
    with_account(cloud, path).write("x", b"data", soon())
    assert cloud.proxy.seen["Authorization"] == "Bearer t0ken"
    assert cloud.direct.read("x", 10) == b"data"


def test_a_clock_that_is_off_is_named(cloud, account, monkeypatch):
    path, tokens = account
    said = "Invalid JWT: Token must be in a reasonable timeframe. Check your iat and exp values"
    tokens.answer = 400, {"error": "invalid_grant", "error_description": said}
    monkeypatch.setattr(buckets, "_FIRST_PAUSE", 0.01)
    with pytest.raises(Denied, match="clocks differ"):
        with_account(cloud, path).write("x", b"data", soon())


def test_an_account_that_is_gone_is_named(cloud, account):
    path, tokens = account
    tokens.answer = 400, {"error": "invalid_grant", "error_description": "account not found"}
    with pytest.raises(StoreUnavailable, match=r"refused \(401\).*account not found"):
        with_account(cloud, path).list("lab/", 10)
