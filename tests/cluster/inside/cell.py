"""Run one cell in a kernel of a Jupyter server, through its REST and websocket API.

cell.py HOST PORT TOKEN [--kernel ID] [--seconds S] [--stdin] < code
Prints JSON: kernel, status, count, text, seconds.
"""

import argparse
import json
import sys
import time
import urllib.request
import uuid

import websocket


def api(base, token, method, path, body=None):
    request = urllib.request.Request(
        base + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"token {token}"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read() or b"null")


def execute(host, port, token, kernel, code, seconds, stdin):
    session, message = uuid.uuid4().hex, uuid.uuid4().hex
    socket = websocket.create_connection(
        f"ws://{host}:{port}/api/kernels/{kernel}/channels?session_id={session}",
        header=[f"Authorization: token {token}"],
        timeout=seconds,
    )
    socket.send(
        json.dumps(
            {
                "header": {
                    "msg_id": message,
                    "username": "",
                    "session": session,
                    "msg_type": "execute_request",
                    "version": "5.3",
                    "date": "",
                },
                "parent_header": {},
                "metadata": {},
                "content": {
                    "code": code,
                    "silent": False,
                    "store_history": True,
                    "user_expressions": {},
                    "allow_stdin": stdin,
                },
                "channel": "shell",
                "buffers": [],
            }
        )
    )
    text, deadline = "", time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = json.loads(socket.recv())
        if answer["parent_header"].get("msg_id") != message:
            continue
        content = answer["content"]
        if answer["msg_type"] == "stream":
            text += content["text"]
        elif answer["msg_type"] == "error":
            text += f"{content['ename']}: {content['evalue']}"
        elif answer["msg_type"] == "execute_reply":
            # the output comes on another channel and may be a moment behind
            socket.settimeout(0.3)
            try:
                while True:
                    more = json.loads(socket.recv())
                    if more["parent_header"].get("msg_id") == message:
                        if more["msg_type"] == "stream":
                            text += more["content"]["text"]
                        if more["content"].get("execution_state") == "idle":
                            break
            except websocket.WebSocketTimeoutException:
                pass
            return content["status"], content.get("execution_count"), text
    raise SystemExit("no answer from the kernel")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("port")
    parser.add_argument("token")
    parser.add_argument("--kernel")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--stdin", action="store_true", help="there is somebody to answer input()")
    args = parser.parse_args()
    base = f"http://{args.host}:{args.port}"
    code, began = sys.stdin.read(), time.monotonic()
    kernel = args.kernel
    if kernel is None:
        kernel = api(base, args.token, "POST", "/api/kernels", {"name": "python3"})["id"]
    status, count, text = execute(
        args.host, args.port, args.token, kernel, code, args.seconds, args.stdin
    )
    print(
        json.dumps(
            {
                "kernel": kernel,
                "status": status,
                "count": count,
                "text": text,
                "seconds": round(time.monotonic() - began, 3),
            }
        )
    )


main()
