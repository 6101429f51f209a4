"""A server that speaks the JSON API of Google Cloud Storage (gcp-storage-emulator), and a proxy."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from tests.parts.store.bucket import BUCKET, Fault, Headers, Proxy

# What Google answers where an upload is given up.
CANCELLED = 499


@dataclass
class GoogleProxy(Proxy):
    """`page`: the emulator answers a list in one piece, Google in pages of at most so many objects.
    `hidden`: what it does not say of an object."""

    page: int = 0
    hidden: tuple[str, ...] = ()

    def named(self, method: str, path: str) -> tuple[str, str]:
        """The request of S3 that does the same: HEAD looks at an object, GET of a bucket lists."""
        asked = urlsplit(path)
        where, _, key = asked.path.partition("/o/")
        bucket = where.partition("/b/")[2].partition("/")[0]
        query = parse_qs(asked.query)
        if where.startswith("/upload") and method != "DELETE":
            key = query.get("name", [""])[0]
            begins = query.get("uploadType") == ["resumable"] and "upload_id" not in query
            return "POST" if begins else "PUT", f"/{bucket}/{key}"
        if method == "GET" and key and not where.startswith("/download"):
            method = "HEAD"
        return method, f"/{bucket}/{unquote(key)}".rstrip("/")

    def refusal(self, fault: Fault) -> tuple[str, str]:
        said = {"error": {"code": fault.status, "message": fault.code}}
        return "application/json", json.dumps(said)

    def _ask(self, asked: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Headers, bytes]:
        method, path = self.named(asked.command, asked.path)
        if method == "DELETE" and asked.path.startswith("/upload"):
            return CANCELLED, [], b""  # of which the emulator knows nothing
        status, headers, answer = super()._ask(asked, body)
        if status != 200 or method == "PUT" or (method == "GET" and path != f"/{BUCKET}"):
            return status, headers, answer
        told = json.loads(answer or b"{}")
        if self.page and "items" in told:
            begin = int(parse_qs(urlsplit(asked.path).query).get("pageToken", ["0"])[0])
            end = begin + self.page
            if end < len(told["items"]):
                told["nextPageToken"] = str(end)
            told["items"] = told["items"][begin:end]
        for one in (told, *told.get("items", ())):
            for name in self.hidden:
                one.pop(name, None)
        return status, headers, json.dumps(told).encode()


@contextmanager
def google_server() -> Iterator[str]:
    """Its URL. What it holds is in its memory."""
    from gcp_storage_emulator import server as emulator
    from gcp_storage_emulator.handlers import buckets
    from gcp_storage_emulator.storage import Storage

    class Request(emulator.Request):  # type: ignore[misc]
        @property
        def data(self) -> object:
            """An upload of no bytes is one, which the emulator does not know."""
            found = super().data
            return b"" if found is None and self.method == "POST" else found

    class Server(HTTPServer):
        request_queue_size = 128

    emulator.Request = Request
    storage = Storage(use_memory_fs=True)
    buckets.create_bucket(BUCKET, storage)
    logging.getLogger("api").setLevel(logging.ERROR)
    server = Server(("127.0.0.1", 0), partial(emulator.RequestHandler, storage))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
