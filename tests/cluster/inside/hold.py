"""A browser tab left open: a websocket to a kernel that is pinged every second.

hold.py HOST PORT TOKEN KERNEL FILE; writes `open` to FILE, and `closed` when the tab finds out.
"""

import sys
import time

import websocket

host, port, token, kernel, path = sys.argv[1:]
tab = websocket.create_connection(
    f"ws://{host}:{port}/api/kernels/{kernel}/channels",
    header=[f"Authorization: token {token}"],
    timeout=1,
)
with open(path, "w") as file:
    file.write("open")
deadline = time.monotonic() + 600
while time.monotonic() < deadline:
    try:
        tab.ping()
        tab.recv()
    except websocket.WebSocketTimeoutException:
        continue
    except (OSError, websocket.WebSocketException):
        with open(path, "w") as file:
            file.write("closed")
        break
