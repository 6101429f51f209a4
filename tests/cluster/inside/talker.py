"""Connections of every kind, kept in use inside the session and idle to the outside.

talker.py FILE OUTSIDE...: each OUTSIDE is `ADDRESS PORT` of an echo server elsewhere. Counts like
counter.py, but only while both ends of its inside connections answer; FILE.outside has what became
of each outside one.
"""

import json
import os
import socket
import sys
import threading
import time

path, *outside = sys.argv[1:]
fate = {}


def inside(address):
    """A connection between this process and a child of it."""
    server = socket.create_server(
        (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET
    )
    if os.fork() == 0:
        there, _ = server.accept()
        server.close()
        while data := there.recv(100):
            there.sendall(data)
        os._exit(0)
    here = socket.create_connection(server.getsockname()[:2])
    server.close()
    return here


def wait_for_the_end(name, connection):
    """As a database's client does: blocked until something comes."""
    try:
        fate[name] = "closed" if not connection.recv(1) else "spoken to"
    except OSError as error:
        fate[name] = f"error {error.errno}"


pairs = [inside("127.0.0.1"), inside("::1")]
for each in outside:
    address, port = each.split()
    connection = socket.create_connection((address, int(port)))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.sendall(b"q")
    assert connection.recv(1) == b"q"
    fate[each] = "open"
    threading.Thread(target=wait_for_the_end, args=(each, connection), daemon=True).start()
count = 0
while True:
    count += 1
    answers = []
    for pair in pairs:
        pair.sendall(b"%d " % count)
        answers.append(pair.recv(100))
    assert answers == [b"%d " % count] * len(pairs), answers
    for name, text in (
        ("", f"{count} {os.getpid()} {os.uname().nodename} True"),
        (".outside", json.dumps(fate)),
    ):
        with open(path + name + ".new", "w") as file:
            file.write(text)
        os.rename(path + name + ".new", path + name)
    time.sleep(0.2)
