"""Sockets that a dump leaves in repair mode, as CRIU does it to them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_reclaim.adapters.proc import repair, tree

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="TCP_REPAIR needs CAP_NET_ADMIN")
ON = (socket.IPPROTO_TCP, 19, 1)
# Connects, is put into repair mode by a descriptor it inherits a copy of, and then writes.
CLIENT = """
import socket, sys
mine = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
mine.setsockopt(socket.IPPROTO_TCP, 19, 1)
print("in repair", flush=True)
for line in sys.stdin:
    mine.sendall(line.encode())
"""


@pytest.fixture
def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, port],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        peer, _ = server.accept()
        peer.settimeout(10)
        assert client.stdout.readline() == "in repair\n"
        yield client, peer
        client.kill()
        client.wait()
        client.stdin.close()
        client.stdout.close()
        peer.close()


def test_what_a_continued_tree_writes_arrives(pair):
    client, peer = pair
    assert repair.end([tree.read(client.pid)]) == 1
    client.stdin.write("hello\n")
    client.stdin.flush()
    assert peer.recv(100) == b"hello\n"
    assert repair.end([tree.read(client.pid)]) == 0, "only once"


def test_within_the_host_a_killed_tree_leaves_no_port_taken(pair):
    client, peer = pair
    port = peer.getpeername()[1]
    assert repair.cut([tree.read(client.pid)]) == 0
    client.kill()
    client.wait()
    peer.settimeout(0.5)
    with pytest.raises(TimeoutError):
        peer.recv(100)
    mine = f"0100007F:{port:04X}", f"0100007F:{peer.getsockname()[1]:04X}"
    taken = [line.split()[1:3] for line in Path("/proc/net/tcp").read_text().splitlines()]
    assert [*mine] not in taken, "not even waiting for late segments (TIME_WAIT)"


def test_processes_that_are_gone_are_left_out(pair):
    client, _ = pair
    gone = tree.read(client.pid)
    client.kill()
    client.wait()
    assert repair.end([gone]) == 0
