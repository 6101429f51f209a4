"""When does a kernel answer for the first time? Tries every 10 ms and prints Unix seconds.

first_reply.py HOST PORT TOKEN KERNEL
"""

import json
import sys
import time
import uuid

import websocket

host, port, token, kernel = sys.argv[1:]
deadline = time.monotonic() + 300
while True:
    try:
        socket = websocket.create_connection(
            f"ws://{host}:{port}/api/kernels/{kernel}/channels",
            header=[f"Authorization: token {token}"],
            timeout=60,
        )
        break
    except (OSError, websocket.WebSocketException):
        if time.monotonic() > deadline:
            raise
        time.sleep(0.01)
message = uuid.uuid4().hex
header = {"msg_id": message, "username": "", "session": uuid.uuid4().hex, "version": "5.3"}
header |= {"msg_type": "execute_request", "date": ""}
content = {"code": "1", "silent": False, "store_history": False, "allow_stdin": False}
body = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
socket.send(json.dumps(body | {"channel": "shell", "buffers": []}))
while True:
    answer = json.loads(socket.recv())
    if answer["parent_header"].get("msg_id") == message and answer["msg_type"] == "execute_reply":
        print(time.time())
        break
