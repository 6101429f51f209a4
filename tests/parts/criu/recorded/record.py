#!/usr/bin/env python3
"""Made the images beside it, of CRIU 4.2.1: dumps a small session of two processes with what the
agent reads of images. As root on a node of a test cluster: record.py FOLDER."""

import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

KEPT = ("core", "cpuinfo", "fdinfo", "files", "mm", "pstree", "remap", "sk-queues", "tcp-stream")


def session() -> None:
    """Sockets of every kind with something in them, one half shut, descriptors on their way, a
    timer that nobody has read, a deleted file, a name that is no UTF-8, threads and a child."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    kept: list[object] = [server, client, server.accept()]
    client.send(b"unread")
    client.shutdown(socket.SHUT_WR)
    kept.append(socket.create_server(("::1", 0), family=socket.AF_INET6))
    kept.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    kept[-1].bind(("127.0.0.1", 0))
    one, other = socket.socketpair()
    reading, _ = os.pipe()
    socket.send_fds(one, [b"with a pipe"], [reading])
    one.send(b"without")
    deleted = socket.socket(socket.AF_UNIX)
    deleted.bind("/tmp/deleted-socket")
    deleted.listen()
    os.unlink("/tmp/deleted-socket")
    os.open("/tmp/deleted-file", os.O_CREAT | os.O_WRONLY)
    os.unlink("/tmp/deleted-file")
    os.open(b"/tmp/no-\xff-utf8", os.O_CREAT | os.O_WRONLY)
    timer = os.timerfd_create(time.CLOCK_MONOTONIC)
    os.timerfd_settime(timer, initial=0.01, interval=0.01)
    forever = threading.Event()
    threading.Thread(target=forever.wait, daemon=True).start()
    os.fork()
    select.poll().poll(3600_000)
    print(kept, other)


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    words = [sys.executable, "-I", "-c", f"{Path(__file__).read_text()}\nsession()"]
    quiet = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    running = subprocess.Popen(words, cwd="/", env={}, start_new_session=True, **quiet)
    time.sleep(2)
    with tempfile.TemporaryDirectory() as work:
        dump = ["dump", "-t", str(running.pid), "--tcp-established", "--network-lock", "skip"]
        for words in (dump, ["cpuinfo", "dump"]):
            subprocess.run(["criu", *words, "-D", work], check=True)
        for path in Path(work).glob("*.img"):
            if path.name.startswith(KEPT):
                (folder / path.name).write_bytes(path.read_bytes())
    running.wait()


if __name__ == "__main__" and len(sys.argv) > 1:
    main()
