"""What an open tab does to a kernel without anything being run: it connects, asks and reloads.

open_tab.py HOST PORT TOKEN KERNEL [SECONDS]
"""

import json
import sys
import time
import urllib.request
import uuid

import websocket

host, port, token, kernel = sys.argv[1:5]
until = time.monotonic() + float([*sys.argv, "5"][5])
ASKED = (
    ("shell", "kernel_info_request", {}),
    ("shell", "comm_info_request", {}),
    ("control", "debug_request", {"seq": 1, "type": "request", "command": "debugInfo"}),
)


def message(channel, kind, content):
    header = {"msg_id": uuid.uuid4().hex, "username": "", "session": "tab", "msg_type": kind}
    header |= {"version": "5.3", "date": ""}
    parts = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
    return json.dumps({**parts, "channel": channel, "buffers": []})


rounds = 0
while time.monotonic() < until:
    tab = websocket.create_connection(
        f"ws://{host}:{port}/api/kernels/{kernel}/channels?session_id=tab",
        header=[f"Authorization: token {token}"],
        timeout=10,
    )
    for asked in ASKED:
        tab.send(message(*asked))
    replies = set()
    while len(replies) < len(ASKED):
        replies.add(json.loads(tab.recv())["msg_type"].replace("reply", "request"))
        replies &= {kind for _, kind, _ in ASKED}
    for path in ("/api/kernels", "/api/sessions", "/api/terminals"):
        request = urllib.request.Request(f"http://{host}:{port}{path}")
        request.add_header("Authorization", f"token {token}")
        urllib.request.urlopen(request, timeout=10).read()
    time.sleep(0.5)
    tab.close()
    rounds += 1
print(rounds)
