"""Bytes over real connections, whose they are, and what arrives at a session that stands still."""

from __future__ import annotations

import os
import socket
import time

import pytest

from slurm_reclaim.adapters.proc import connections, sockdiag, sockets
from slurm_reclaim.adapters.proc.connections import Connections, Holdings
from slurm_reclaim.adapters.proc.meters import NetworkMeter
from slurm_reclaim.adapters.proc.tree import members
from slurm_reclaim.errors import Unavailable
from slurm_reclaim.model.sample import Signal
from tests.parts.signals.test_meters import census_of

UID = 65534
CONNECT = "c = socket.create_connection(('127.0.0.1', {port}))"
MIB = 1 << 20


class AlwaysAsked(Connections):
    """The kernel is asked at every look: the tests do not wait for 15 seconds."""

    def of_user(self, uid, within):
        return super().of_user(uid, 0.0)


class Meter:
    """A network meter; `read` gives the bytes since the last call, None unknown."""

    def __init__(self, one, connections=None):
        self.meter = NetworkMeter(census_of(one), one.init, one.uid, connections or AlwaysAsked())
        self.meter.read(0.0)

    def read(self):
        before = self.meter._holdings.at
        value = self.meter.read(1.0)[Signal.NETWORK.value].value
        return value and round(value * (self.meter._holdings.at - before))


@pytest.fixture
def server():
    """What stands for the rest of the world: not of the session."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def meter_of(one):
    return Meter(one).read


def connect(one, server):
    one.run(CONNECT.format(port=server.getsockname()[1]))
    return server.accept()[0]


def settled():
    time.sleep(0.2)


def test_a_download_counts_and_an_open_connection_does_not(session, server):
    one = session(uid=UID)
    far = connect(one, server)
    read = meter_of(one)
    assert read() == 0
    far.sendall(bytes(MIB))
    one.run(f"n = 0\nwhile n < {MIB}: n += len(c.recv(1 << 20))")
    settled()
    assert MIB <= read() < MIB + 1000
    assert read() == 0


def test_an_upload_counts(session, server):
    one = session(uid=UID)
    far = connect(one, server)
    read = meter_of(one)
    one.run(f"threading.Thread(target=c.sendall, args=(bytes({MIB}),)).start()")
    got = 0
    while got < MIB:
        got += len(far.recv(MIB))
    settled()
    assert MIB <= read() < MIB + 1000


def test_a_connection_that_is_new_counts_in_full(session, server):
    one = session(uid=UID)
    read = meter_of(one)
    far = connect(one, server)
    far.sendall(bytes(1000))
    settled()
    assert read() >= 1000


def test_what_the_session_says_to_itself_does_not_count(session):
    one = session(uid=UID)
    one.run("s = socket.create_server(('127.0.0.1', 0))\na = socket.create_connection("
            "s.getsockname())\nb = s.accept()[0]")  # fmt: skip
    read = meter_of(one)
    one.run("a.sendall(bytes(100000))\nn = 0\nwhile n < 100000: n += len(b.recv(100000))")
    settled()
    assert read() == 0


def test_two_sessions_of_one_user_are_told_apart(session, server):
    first, second = session(uid=UID), session(uid=UID)
    shared = AlwaysAsked()
    meters = [Meter(one, shared) for one in (first, second)]
    connect(second, server).sendall(bytes(5000))
    settled()
    values = [meter.read() for meter in meters]
    assert values[0] == 0
    assert values[1] >= 5000


def test_a_connection_handed_to_a_new_process_is_found(session, server):
    one = session(uid=UID)
    far = connect(one, server)
    read = meter_of(one)
    one.run("child = subprocess.Popen(['sleep', '60'], pass_fds=(c.fileno(),))\nc.close()")
    far.sendall(bytes(3000))
    settled()
    assert read() >= 3000


def test_too_many_open_files_are_unknown(session, server, monkeypatch):
    one = session(uid=UID)
    read = meter_of(one)
    monkeypatch.setattr(connections, "_MOST_LINKS", 2)
    far = connect(one, server)
    far.sendall(b"x")
    settled()
    assert read() is None
    monkeypatch.undo()
    far.sendall(bytes(1000))
    settled()
    assert read() >= 1000


def test_unknown_stays_unknown_until_the_kernel_was_asked_again(session, server, monkeypatch):
    one = session(uid=UID)
    asked = Connections()
    meter = Meter(one, asked)
    monkeypatch.setattr(connections, "OLD", 0.0)
    monkeypatch.setattr(connections, "FRESH", 0.0)
    far = connect(one, server)
    far.sendall(b"x")
    settled()
    monkeypatch.setattr(connections, "_MOST_LINKS", 2)
    assert meter.read() is None
    monkeypatch.setattr(connections, "OLD", 100.0)
    monkeypatch.setattr(connections, "FRESH", 100.0)
    assert meter.read() is None


def test_nothing_is_said_before_the_second_look(session, server, monkeypatch):
    one = session(uid=UID)
    far = connect(one, server)
    meter = NetworkMeter(census_of(one), one.init, UID, Connections())
    assert meter.read(0.0)["network"].value is None
    assert meter.read(0.1)["network"].value is None, "of the list that was there at the first"
    monkeypatch.setattr(connections, "FRESH", 0.0)
    far.sendall(bytes(100_000))
    settled()
    assert meter.read(0.2)["network"].value > 10_000


def test_a_kernel_that_does_not_count_is_unknown(session, server, monkeypatch):
    one = session(uid=UID)
    far = connect(one, server)
    monkeypatch.setattr(sockdiag, "_COUNTERS_AT", 1 << 12)
    read = meter_of(one)
    far.sendall(b"x")
    assert read() is None


def test_a_socket_nobody_of_the_session_holds_is_not_searched_for_at_every_look(session):
    one = session(uid=UID)
    holdings = Holdings(UID)
    foreign = sockdiag.Tcp(7, UID, 1, (b"", b""), (b"", b""), 0, 0, 0)
    looked = []
    for _ in range(10):
        before = connections.held_by
        calls = []
        connections.held_by = lambda *a, calls=calls, before=before: calls.append(a) or before(*a)
        try:
            connections._attribute(holdings, [foreign], [one.root])
        finally:
            connections.held_by = before
        looked.append(bool(calls))
    assert looked == [True, True, True, False, False, False, True, False, False, False]


# -- a session that stands still -------------------------------------------------------------------


@pytest.fixture
def still(session, server):
    """A session with a connection to elsewhere and a port of its own, then stopped."""

    class Still:
        def __init__(self):
            self.one = session(uid=UID)
            self.far = connect(self.one, server)
            self.one.run("s = socket.create_server(('127.0.0.1', 0))")

        def tree(self):
            return members(self.one.init)

        def baseline(self):
            return sockets.received(self.tree())

        def arrived(self, before):
            settled()
            return sockets.arrived(self.tree(), before)

    return Still()


def test_nothing_arrives(still):
    assert still.arrived(still.baseline()) == []


def test_an_unread_message_is_found(still):
    before = still.baseline()
    still.far.sendall(b"hello")
    (what,) = still.arrived(before)
    assert what.startswith("a message arrived on 127.0.0.1 port")


def test_a_message_that_was_read_since_is_found(still):
    before = still.baseline()
    still.far.sendall(b"hello")
    still.one.run("c.recv(100)")
    assert len(still.arrived(before)) == 1


def test_a_connection_that_waits_at_a_port_is_found(still):
    before = still.baseline()
    (port,) = (s.port for s in sockdiag.tcp() if s.state == sockdiag.LISTEN and s.uid == UID)
    with socket.create_connection(("127.0.0.1", port)):
        assert still.arrived(before) == [f"a connection to port {port} arrived"]


def test_a_server_that_asked_its_kernel_tells_of_somebody_who_is_gone_again(still):
    """A cell may come and be answered over a connection that is closed before the freeze."""
    one = still.one
    one.run("a = socket.create_connection(s.getsockname()); b = s.accept()[0]")
    before, apart = sockets.received(still.tree(), {one.root}), still.baseline()
    one.run("a.sendall(b'execute_request'); b.recv(100)")
    settled()
    (what,) = sockets.arrived(still.tree(), before, {one.root})
    assert what.startswith("a message arrived on 127.0.0.1 port")
    assert still.arrived(apart) == [], "what others of the session say to each other is no use"


def test_addresses_of_both_families_can_be_shown():
    v4 = sockdiag.Tcp(1, 0, 1, (bytes([127, 0, 0, 1]), b"\x22\xb8"), (bytes(4), bytes(2)), 0, 0, 0)
    v6 = sockdiag.Tcp(1, 0, 1, (bytes(15) + b"\1", b"\x22\xb8"), (bytes(16), bytes(2)), 0, 0, 0)
    assert str(v4) == "127.0.0.1 port 8888 from 0.0.0.0 port 0"
    assert str(v6) == "::1 port 8888 from :: port 0"


@pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="no IPv6")
def test_ipv4_over_an_ipv6_socket_is_the_same_connection():
    server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    with server as s, socket.create_connection(("127.0.0.1", s.getsockname()[1])) as a:
        b = s.accept()[0]
        inodes = {os.fstat(x.fileno()).st_ino for x in (a, b)}
        mine = [x for x in sockdiag.tcp() if x.inode in inodes]
        assert len(mine) == 2
        assert connections.to_elsewhere(mine) == []
        b.close()


def test_a_dump_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(sockdiag, "PATIENCE", 1e-9)
    with pytest.raises(Unavailable):
        list(sockdiag.tcp())
