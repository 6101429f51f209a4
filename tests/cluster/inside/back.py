"""Somebody comes back at a given moment: connected before, sends then, waits for what comes.

back.py cell HOST PORT TOKEN KERNEL AT < code       runs a cell
back.py key HOST PORT TOKEN TERMINAL AT < line      types a line into a terminal
Prints JSON: sent (Unix seconds, 0: the connection was gone by then), answer (text, "": none came),
closed (whether the connection was closed meanwhile).
"""

import json
import sys
import time
import uuid

import websocket

PATIENCE = 10.0


def cell_request(code):
    header = {
        "msg_id": uuid.uuid4().hex,
        "username": "",
        "session": uuid.uuid4().hex,
        "msg_type": "execute_request",
        "version": "5.3",
        "date": "",
    }
    content = {
        "code": code,
        "silent": False,
        "store_history": True,
        "user_expressions": {},
        "allow_stdin": False,
    }
    return header["msg_id"], {
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "channel": "shell",
        "buffers": [],
    }


def main():
    kind, host, port, token, name, at = sys.argv[1:]
    text = sys.stdin.read()
    path = f"api/kernels/{name}/channels" if kind == "cell" else f"terminals/websocket/{name}"
    told = {"sent": 0.0, "answer": "", "closed": False}
    try:
        tab = websocket.create_connection(
            f"ws://{host}:{port}/{path}", header=[f"Authorization: token {token}"], timeout=0.5
        )
        message, request = cell_request(text) if kind == "cell" else ("", ["stdin", text + "\r"])
        while time.time() < float(at):
            time.sleep(min(0.05, max(0.0, float(at) - time.time())))
        tab.send(json.dumps(request))
        told["sent"] = time.time()
        if kind == "cell":
            wait_for_reply(tab, message, told)
        else:
            listen(tab, told)
    except (OSError, websocket.WebSocketException):
        told["closed"] = True
    print(json.dumps(told))


def wait_for_reply(tab, message, told):
    deadline = time.time() + PATIENCE
    while time.time() < deadline:
        try:
            answer = json.loads(tab.recv())
        except websocket.WebSocketTimeoutException:
            continue
        if answer["parent_header"].get("msg_id") != message:
            continue
        if answer["msg_type"] == "stream":
            told["answer"] += answer["content"]["text"]
        elif answer["content"].get("execution_state") == "idle":
            return


def listen(tab, told):
    deadline = time.time() + 3
    while time.time() < deadline:
        try:
            kind, *rest = json.loads(tab.recv())
        except websocket.WebSocketTimeoutException:
            continue
        if kind == "stdout":
            told["answer"] += rest[0]


main()
