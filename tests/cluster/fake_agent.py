# SPDX-License-Identifier: Apache-2.0
"""A stand-in for reclaim-agent: speaks section 1 of docs/protocol.md and decides nothing.

As a module: FakeAgent in a thread. As a program, on a node of the test cluster: what it sees is
appended to a log as JSON lines, and `--order` sends one command to a job of a running one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

Message = dict[str, str]


def encode(message: Message) -> bytes:
    lines = []
    for key, value in message.items():
        raw = str(value).encode("utf-8", "surrogateescape")
        text = b"".join(b"%%%02X" % c if c < 0x20 or c in (0x7F, 0x25) else bytes([c]) for c in raw)
        lines.append(key.encode() + b"=" + text + b"\n")
    return b"".join(lines) + b"\n"


def unquote(raw: bytes) -> str:
    parts = raw.split(b"%")
    out = parts[0] + b"".join(bytes([int(p[:2], 16)]) + p[2:] for p in parts[1:])
    return out.decode("utf-8", "surrogateescape")


class Peer:
    """One connection, message by message."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = b""

    def send(self, message: Message) -> None:
        self.sock.sendall(encode(message))

    def receive(self) -> Message | None:
        while b"\n\n" not in self.buffer:
            try:
                data = self.sock.recv(65536)
            except OSError:
                return None
            if not data:
                return None
            self.buffer += data
        head, self.buffer = self.buffer.split(b"\n\n", 1)
        pairs = (line.split(b"=", 1) for line in head.split(b"\n"))
        return {key.decode(): unquote(value) for key, value in pairs}


class FakeAgent:
    def __init__(
        self, path: str | Path, answer: Message, seen: Callable[[Message], None] | None = None
    ) -> None:
        self.path = Path(path)
        self.answer = answer
        self.seen = seen
        self.events: list[Message] = []
        self.sessions: dict[str, Peer] = {}
        self.replies: dict[str, list[Message]] = {}
        self.changed = threading.Condition()
        self.peers: list[Peer] = []
        self.path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.path.chmod(0o600)
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        if self.listener.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.path.unlink(missing_ok=True)
        for peer in self.peers:
            with contextlib.suppress(OSError):
                peer.sock.shutdown(socket.SHUT_RDWR)

    def wait(
        self, match: Callable[[Message], bool], timeout: float = 10, after: int = 0
    ) -> Message:
        deadline = time.monotonic() + timeout
        with self.changed:
            while True:
                for event in self.events[after:]:
                    if match(event):
                        return event
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"not seen; seen were {self.events}")
                self.changed.wait(left)

    def attached(self, job: int | str, timeout: float = 10, after: int = 0) -> Message:
        return self.wait(
            lambda e: e.get("op") == "attach" and e.get("job") == str(job), timeout, after
        )

    def ended(self, timeout: float = 10, after: int = 0) -> int:
        return int(self.wait(lambda e: e.get("event") == "exit", timeout, after)["status"])

    def order(self, job: int | str, **order: object) -> Message:
        """Sends cmd=... to the job's reclaim-init and returns its reply."""
        job = str(job)
        with self.changed:
            before = len(self.replies.setdefault(job, []))
            self.sessions[job].send({key: str(value) for key, value in order.items()})
            if not self.changed.wait_for(lambda: len(self.replies[job]) > before, 10):
                raise TimeoutError("no reply")
            return self.replies[job][before]

    def _note(self, message: Message) -> None:
        with self.changed:
            self.events.append(message)
            self.changed.notify_all()
        if self.seen:
            self.seen(message)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            peer = Peer(sock)
            self.peers.append(peer)
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: Peer) -> None:
        first = peer.receive()
        if first is None:
            return
        if first.get("op") == "start":
            self._note(first)
            peer.send(self.answer)
            peer.sock.close()
        elif first.get("op") == "attach":
            self._session(peer, first)
        else:
            self._control(peer, first)

    def _session(self, peer: Peer, hello: Message) -> None:
        job = hello["job"]
        self.sessions[job] = peer
        # A job can be over before it has said hello.
        with contextlib.suppress(OSError):
            peer.send({"ok": "1"})
        self._note(hello)
        while (message := peer.receive()) is not None:
            if "cmd" in message:
                with self.changed:
                    self.replies.setdefault(job, []).append(message)
                    self.changed.notify_all()
            self._note({"job": job, **message})
        self._note({"job": job, "event": "gone"})

    def _control(self, peer: Peer, message: Message) -> None:
        if message["op"] == "answer":
            self.answer = {k: v for k, v in message.items() if k != "op"}
            peer.send({"ok": "1"})
            return
        job = message.pop("job")
        message.pop("op")
        try:
            peer.send(self.order(job, **message))
        except (KeyError, TimeoutError) as problem:
            peer.send({"ok": "0", "error": repr(problem)})


def pairs(words: list[str]) -> Message:
    return dict(word.split("=", 1) for word in words)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", default="/run/slurm-reclaim/agent.sock")
    parser.add_argument("--log", default="/var/log/fake-agent.jsonl")
    parser.add_argument("--order", action="store_true", help="send the words to a running one")
    parser.add_argument("words", nargs="*", help="key=value of the answer, or of the order")
    options = parser.parse_args()
    if options.order:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(options.socket)
        peer = Peer(sock)
        peer.send(pairs(options.words))
        print(json.dumps(peer.receive()))
        return 0
    os.makedirs(os.path.dirname(options.socket), exist_ok=True)
    answer = pairs(options.words) or {"mode": "ignore"}
    with open(options.log, "a", buffering=1) as log:
        FakeAgent(options.socket, answer, lambda event: print(json.dumps(event), file=log))
        print("ready", flush=True)
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
