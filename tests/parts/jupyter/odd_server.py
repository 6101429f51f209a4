"""What a hostile or broken "Jupyter server" may answer. odd_server.py BEHAVIOUR [--port=N|--sock=P]

With KERNEL in its environment it has a child that looks like a kernel. Prints its port when it
listens, and each request line with its token as it comes.
"""

import os
import socket
import subprocess
import sys
import time

GOOD = (
    b'[{"id": "11112222-a", "execution_state": "idle", "last_activity": "2024-01-01T00:00:00Z"},'
    b' {"id": "33334444-b", "execution_state": "busy", "last_activity": "2024-01-02T00:00:00Z"}]'
)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
STATE = b'[{"id": "1111", "execution_state": "%s", "last_activity": "2024-01-01T00:00:00Z"}]'

SAID = {
    "good": OK + GOOD,
    "idle": OK + STATE % b"idle",
    "none": OK + b"[]",
    "future": OK + GOOD.replace(b"2024-01-02", b"2924-01-02"),
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
    "forbidden": b"HTTP/1.1 403 Forbidden\r\n\r\n",
    "failing": b"HTTP/1.1 500 Oops\r\n\r\n",
    "html": OK + b"<html>welcome</html>",
    "object": OK + b'{"kernels": []}',
    "numbers": OK + b"[1, 2, 3]",
    "types": OK + b'[{"id": 5, "execution_state": [], "last_activity": true}]',
    "escape": OK + STATE.replace(b"1111", b"\\u001b[31m") % b"idle",
    "timeless": OK + STATE.replace(b"Z", b"") % b"idle",
    "strange": OK + STATE % b"thinking",
    "deep": OK + b"[" * 400_000,
    "big": OK + b"[" + b",".join([GOOD[1:-1]] * 60_000) + b"]",
    "gibberish": b"\x00\xff" * 5000,
    "silence": b"",
    "continues": b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
    "short": b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n[]",
    "huge": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n[]",
    "headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000 + b"\r\n[]",
}


def answer(client, behaviour):
    if behaviour == "mute":
        time.sleep(60)
    elif behaviour == "drip":
        for byte in OK + GOOD * 1000:
            client.sendall(bytes([byte]))
            time.sleep(0.2)
    elif behaviour == "endless":
        client.sendall(OK + b"[")
        while True:
            client.sendall(b" " * 65536)
    else:
        client.sendall(SAID[behaviour])


def main():
    behaviour, where = sys.argv[1], sys.argv[-1]
    if "KERNEL" in os.environ:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", "kernel-1.json"])
    if where.startswith("--sock="):
        server = socket.socket(socket.AF_UNIX)
        server.bind(where[7:])
    else:
        server = socket.socket()
        server.bind(("127.0.0.1", int(where[7:]) if where.startswith("--port=") else 0))
    if behaviour != "deaf":
        server.listen()
    name = server.getsockname()
    print("listening", name[1] if isinstance(name, tuple) else 0, os.getpid(), flush=True)
    while True:
        if behaviour == "deaf":
            time.sleep(60)
        client, _ = server.accept()
        try:
            request = client.recv(4096).decode("latin-1")
            token = [x for x in request.split("\r\n") if x.startswith("Authorization")]
            print("asked", request.split("\r\n")[0], *token, flush=True)
            answer(client, behaviour)
        except OSError:
            pass
        finally:
            client.close()


main()
