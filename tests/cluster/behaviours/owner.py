"""owner.py HOST PORT TOKEN FILE SECONDS: what the owner of a notebook does, for so many seconds.

Runs the cell in FILE, by the words in its head: `wait: no` doesn't wait for its end, `again: N`
runs it anew every N seconds, `stdin: yes` lets it ask, `tab: N` sends every N seconds what an open
tab sends, `terminal: yes` opens a terminal first.
"""

import contextlib
import json
import re
import sys
import time
import urllib.request
import uuid
from pathlib import Path

import websocket

HOST, PORT, TOKEN, FILE, SECONDS = sys.argv[1:]
CODE = Path(FILE).read_text()
HEAD = dict(re.findall(r"^# (\w+): (.+)$", CODE, re.M))
BASE, SESSION = f"http://{HOST}:{PORT}", uuid.uuid4().hex
UNTIL = time.monotonic() + float(SECONDS)


def api(method, path, body=None):
    request = urllib.request.Request(
        BASE + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"token {TOKEN}"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read() or b"null")


def send(socket, kind, content, channel="shell"):
    header = {"msg_id": uuid.uuid4().hex, "username": "", "session": SESSION, "msg_type": kind,
              "version": "5.3", "date": ""}  # fmt: skip
    socket.send(json.dumps({"header": header, "parent_header": {}, "metadata": {},
                            "content": content, "channel": channel, "buffers": []}))  # fmt: skip


def execute(socket):
    send(socket, "execute_request", {
        "code": CODE, "silent": False, "store_history": True, "user_expressions": {},
        "allow_stdin": "stdin" in HEAD,
    })  # fmt: skip


def listen(socket, seconds):
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        # Short: the server's pings, which never come up here, begin a timeout anew.
        socket.settimeout(min(left, 2.0))
        with contextlib.suppress(websocket.WebSocketTimeoutException):
            socket.recv()


def main():
    if "terminal" in HEAD:
        api("POST", "/api/terminals", {})
    kernel = api("POST", "/api/kernels", {"name": "python3"})["id"]
    socket = websocket.create_connection(
        f"ws://{HOST}:{PORT}/api/kernels/{kernel}/channels?session_id={SESSION}",
        header=[f"Authorization: token {TOKEN}"], timeout=20,
    )  # fmt: skip
    execute(socket)
    listen(socket, 5)
    every = float(HEAD.get("again") or HEAD.get("tab") or 0)
    if not every and "stdin" not in HEAD:
        socket.close()
        return
    while time.monotonic() < UNTIL:
        listen(socket, every or 5)
        if "again" in HEAD:
            execute(socket)
        elif "tab" in HEAD:
            send(socket, "kernel_info_request", {})
            api("GET", "/api/kernels")
            api("GET", "/api/sessions")


main()
