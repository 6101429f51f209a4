"""A real S3 server (moto) and a proxy before it that goes wrong on demand."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

BUCKET = "checkpoints"
Headers = list[tuple[str, str]]
OPTIONS = {"key": "testing", "secret": "testing", "client_kwargs": {}}
_SAID = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>{said}</Message></Error>'


@dataclass
class Fault:
    """What the proxy does to the requests that `on` picks, `times` of them: answers `status` with
    `code`, waits, hands on only a part of what is sent (`short_up`) or answered (`short_down`), or
    hands on everything and hangs up without an answer (`lost`)."""

    on: Callable[[str, str], bool]
    times: int = 1 << 30
    status: int = 0
    code: str = "InternalError"
    wait: float = 0.0
    short_up: bool = False
    short_down: bool = False
    lost: bool = False
    seen: int = 0


@dataclass
class Proxy:
    target: str
    host: str = "127.0.0.1"
    port: int = 0
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        proxy = self
        self.seen = Message()  # the headers of the last request

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Else the body of an answer waits 40 ms for the other end to acknowledge its head.
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                pass

            def handle_any(self) -> None:
                proxy.pass_on(self)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

        self._server = ThreadingHTTPServer((self.host, self.port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def fail(self, **how: object) -> Fault:
        how.setdefault("on", lambda method, path: True)
        fault = Fault(**how)  # type: ignore[arg-type]
        self.faults.append(fault)
        return fault

    def _fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.seen < fault.times and fault.on(method, path):
                fault.seen += 1
                return fault
        return None

    def named(self, method: str, path: str) -> tuple[str, str]:
        """What is asked for, as faults pick it: an S3 request's method, bucket and key."""
        return method, urlsplit(path).path

    def refusal(self, fault: Fault) -> tuple[str, str]:
        """Content type and text of what a server says with an error."""
        return "application/xml", _SAID.format(code=fault.code, said=fault.code)

    def pass_on(self, asked: BaseHTTPRequestHandler) -> None:
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        method, path = self.named(asked.command, asked.path)
        self.requests.append((method, path))
        self.seen = asked.headers
        fault = self._fault(method, path)
        if fault is not None and fault.wait:
            time.sleep(fault.wait)
        if fault is not None and fault.status:
            kind, said = self.refusal(fault)
            self._answer(asked, fault.status, [("Content-Type", kind)], said.encode())
            return
        if fault is not None and fault.short_up:
            body = body[: len(body) // 2]
        status, headers, answer = self._ask(asked, body)
        if fault is not None and fault.lost:
            asked.close_connection = True
            return
        if fault is not None and fault.short_down:
            answer = answer[: len(answer) // 2]
        self._answer(asked, status, headers, answer)

    def _ask(self, asked: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Headers, bytes]:
        place = urlsplit(self.target)
        server = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        headers = {k: v for k, v in asked.headers.items() if k.lower() != "content-length"}
        headers["Content-Length"] = str(len(body))
        server.request(asked.command, asked.path, body, headers)
        reply = server.getresponse()
        found = reply.status, reply.getheaders(), reply.read()
        server.close()
        return found

    def _answer(
        self,
        asked: BaseHTTPRequestHandler,
        status: int,
        headers: Headers,
        body: bytes,
    ) -> None:
        asked.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date"):
                asked.send_header(name, value)
        size = {k.lower(): v for k, v in headers}.get("content-length", "0")
        asked.send_header("Content-Length", size if asked.command == "HEAD" else str(len(body)))
        asked.end_headers()
        if asked.command != "HEAD":
            asked.wfile.write(body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
