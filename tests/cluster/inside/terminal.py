"""Type into a Jupyter terminal and print what it shows.

terminal.py HOST PORT TOKEN [--name N] [--seconds S] < lines to type
A line `^Z` or `^C` is typed as that key. Without --name a terminal is made. Prints JSON.
"""

import argparse
import json
import sys
import time
import urllib.request

import websocket


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("port")
    parser.add_argument("token")
    parser.add_argument("--name", default="")
    parser.add_argument("--seconds", type=float, default=1.5)
    args = parser.parse_args()
    name = args.name
    if not name:
        request = urllib.request.Request(
            f"http://{args.host}:{args.port}/api/terminals",
            method="POST",
            data=b"{}",
            headers={"Authorization": f"token {args.token}"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            name = json.loads(answer.read())["name"]
    socket = websocket.create_connection(
        f"ws://{args.host}:{args.port}/terminals/websocket/{name}",
        header=[f"Authorization: token {args.token}"],
        timeout=0.2,
    )
    text = ""

    def listen(seconds):
        nonlocal text
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                kind, *rest = json.loads(socket.recv())
            except websocket.WebSocketTimeoutException:
                continue
            if kind == "stdout":
                text += rest[0]

    listen(args.seconds)
    text = ""
    for line in sys.stdin.read().splitlines():
        key = {"^Z": "\x1a", "^C": "\x03"}.get(line, line + "\r")
        socket.send(json.dumps(["stdin", key]))
        listen(0.6)
    listen(args.seconds)
    print(json.dumps({"name": name, "text": text}))


main()
