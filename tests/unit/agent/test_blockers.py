"""What can't be dumped is found on real processes, by name, without touching them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from slurm_reclaim.adapters.proc import blockers, file_blockers, filesystems, opened, sockets, tree

needs_ss = pytest.mark.skipif(not os.path.exists("/usr/bin/ss"), reason="iproute2's ss is missing")


@pytest.fixture
def session():
    """Start a Python process that does `code`, says ready and waits; gives what blocks it."""
    started = []

    def start(code, ghost_limit=1 << 20, **more):
        process = subprocess.Popen(
            [sys.executable, "-c", code + "\nprint('ready', flush=True)\ninput()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **more,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        seen = [tree.read(process.pid)]
        found = [
            *blockers.find(seen, root=process.pid, relay=process.pid, uid=os.geteuid()),
            *file_blockers.find(
                opened.files(seen),
                ghost_limit=ghost_limit,
                saved=[b"/tmp"],
                mounted=filesystems.mounted(process.pid),
            ),
        ]
        # run by root, the process has capabilities; that is another test's business
        return {b.name: b for b in found if b.name != "capabilities"}

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@needs_ss
@pytest.mark.parametrize("reaped", [False, True])
def test_what_ends_while_it_is_looked_at_stands_in_nobodys_way(reaped):
    """A shell's children come and go: of one that is just ending no namespace can be read."""
    root = subprocess.Popen(["sleep", "60"])
    child = subprocess.Popen(["sleep", "60"])
    try:
        seen = [tree.read(root.pid), replace(tree.read(child.pid), parent=root.pid)]
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | (0 if reaped else os.WNOWAIT))
        found = blockers.find(seen, root=root.pid, relay=root.pid, uid=os.geteuid())
        assert [b for b in found if b.name != "capabilities"] == []
    finally:
        root.kill()
        root.wait()
        child.wait()


@needs_ss
def test_the_memory_of_who_has_no_huge_pages_is_not_walked(session, monkeypatch):
    """The kernel does that for smaps, with all of it, and a session may have very much."""
    walked = []
    monkeypatch.setattr(blockers, "_huge_pages", lambda process: walked.append(process) or ())
    session("")
    assert walked == []


@needs_ss
def test_an_ordinary_process_has_no_blockers(session):
    code = """
import os, socket, select, tempfile
a, b = socket.socketpair(); s = socket.create_server(('127.0.0.1', 0))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
unbound = socket.socket(); e = select.epoll(); m = os.memfd_create('x'); p = os.pipe()
f = tempfile.TemporaryFile(); n = open('/dev/null'); c = socket.create_connection(s.getsockname())
"""
    assert session(code) == {}


@needs_ss
def test_a_unix_peer_outside_is_named(session):
    here, there = socket.socketpair()
    with here:
        fd = there.fileno()
        os.set_inheritable(fd, True)
        found = session(
            f"import os; os.fstat({fd})", pass_fds=[fd], preexec_fn=lambda: os.close(here.fileno())
        )
        there.close()
    assert "outside-unix-peer" in found


@needs_ss
def test_a_socket_kind_without_support(session):
    try:
        socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
    except OSError:
        pytest.skip("this kernel has no vsock")
    found = session("import socket; s = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)")
    assert "VSOCK" in found["socket-kind"].what


@needs_ss
def test_a_large_deleted_file(session):
    code = "import tempfile; f = tempfile.TemporaryFile(); f.truncate(2 << 20); f.flush()"
    assert "deleted-file" in session(code)
    assert session(code, ghost_limit=4 << 20) == {}


@needs_ss
def test_io_uring(session):
    if not _has_io_uring():
        pytest.skip("io_uring is off in this kernel")
    code = "import ctypes; b = ctypes.create_string_buffer(256); "
    found = session(code + "assert ctypes.CDLL(None).syscall(425, 4, b) >= 0")
    assert "io-uring" in found


def _has_io_uring():
    try:
        return open("/proc/sys/kernel/io_uring_disabled").read().strip() == "0"
    except OSError:
        return False


@needs_ss
def test_strict_seccomp():
    code = (
        "import ctypes; libc = ctypes.CDLL(None); print('ready', flush=True); "
        "libc.prctl(22, 1, 0, 0, 0) and print('filtered', flush=True); libc.read(0, b'x', 1)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as strict:
        strict.stdout.readline()
        deadline = time.monotonic() + 10
        while tree.read(strict.pid).status["Seccomp"] == "0" and time.monotonic() < deadline:
            time.sleep(0.01)
        seen = tree.read(strict.pid)
        found = blockers.find([seen], root=seen.pid, relay=seen.pid, uid=os.geteuid())
        strict.kill()
    if seen.status["Seccomp"] == "2":
        pytest.skip("whoever runs the tests has a filter, and strict mode is refused")
    assert "seccomp" in {b.name for b in found}


@needs_ss
def test_a_traced_process(session):
    traced = subprocess.Popen(
        [sys.executable, "-c", "import ctypes, time; ctypes.CDLL(None).ptrace(0, 0, 0, 0); "
         "print('ready', flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        traced.stdout.readline()
        found = blockers.find(
            [tree.read(traced.pid)],
            root=traced.pid,
            relay=traced.pid,
            uid=os.geteuid(),
        )
        assert "traced" in {b.name for b in found}
    finally:
        traced.kill()
        traced.wait()
        traced.stdout.close()


@needs_ss
@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no /dev/fuse here")
def test_a_foreign_device(session):
    found = session("import os; f = os.open('/dev/fuse', os.O_RDWR)")
    assert "FUSE" in found["fuse-daemon"].what


def test_a_session_without_processes_has_nothing_to_save():
    found = blockers.find([], root=1, relay=1, uid=0)
    assert [b.name for b in found] == ["no-process"]


def test_processes_outside_of_the_tree():
    process = subprocess.Popen(["sleep", "60"])
    try:
        own = tree.read(os.getpid())
        strays = tree.outside([own, tree.read(process.pid)], process.pid)
        assert strays == [own]
        assert tree.outside([own, tree.read(process.pid)], os.getpid()) == []
    finally:
        process.kill()
        process.wait()


def test_what_is_gone_but_leads_a_session_takes_no_signal_from_the_others():
    """Linux 6.12 says EINVAL of it and not ESRCH; a batch script that ends first is such a one."""
    reading, writing = os.pipe()
    leader = subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; read x"],
        stdin=reading, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    child = tree.read(int(leader.stdout.readline()))
    try:
        first = tree.read(leader.pid)
        os.write(writing, b"end\n")
        assert leader.wait() == 0
        with pytest.raises(ProcessLookupError):
            tree.pidfd(leader.pid)
        tree.signal_all([first, child], signal.SIGKILL)
        deadline = time.monotonic() + 10
        while (left := tree.read(child.pid)) is not None and left.state != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        tree.signal_all([child], signal.SIGKILL)
        leader.stdout.close()
        os.close(reading)
        os.close(writing)


def test_who_can_not_be_signalled_does_not_spare_the_others():
    process = subprocess.Popen(["sleep", "60"])
    try:
        refused = replace(tree.read(os.getpid()), pid=-1)
        with pytest.raises(OSError, match="Invalid argument"):
            tree.signal_all([refused, tree.read(process.pid)], signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    finally:
        process.kill()


def test_a_reused_pid_is_never_signalled():
    process = subprocess.Popen(["sleep", "60"])
    try:
        seen = tree.read(process.pid)
        other = tree.Process(
            seen.pid, seen.inner, seen.parent, seen.name, seen.state, seen.start + 1, seen.status
        )
        tree.signal_all([other], signal.SIGKILL)
        assert process.poll() is None
        tree.signal_all([seen], signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    finally:
        process.kill()


def test_peers_are_read_from_what_ss_prints():
    process = tree.read(os.getpid())
    listing = (
        "u_str ESTAB 0 0 * 10 * 11\n"
        "u_str ESTAB 0 0 * 11 * 10\n"
        "u_str ESTAB 0 0 * 20 * 21\n"
        "u_str ESTAB 0 0 /run/dbus/socket 21 * 20\n"
        "u_dgr UNCONN 0 0 * 30 * 0\n"
    )
    found = sockets.unix_peers(listing, {10: process, 11: process, 20: process, 30: process})
    assert [b.what for b in found] == [f"{process} is connected to /run/dbus/socket"]


def test_names_that_are_no_utf8_are_shown_and_break_nothing(session, tmp_path):
    odd = os.path.join(os.fsencode(tmp_path), b"x\xff\xfe")
    code = (
        "import ctypes, os; ctypes.CDLL(None).prctl(15, b'ab\\xff\\x0b\\x1cUid:', 0, 0, 0); "
        f"f = open({odd!r}, 'wb'); f.truncate(9 << 20); os.unlink({odd!r})"
    )
    found = session(code)
    assert "\\xff\\xfe" in found["deleted-file"].what
    json.dumps(found["deleted-file"].what).encode()
    assert "ab\\xff" in found["deleted-file"].what


@pytest.mark.skipif(os.geteuid() != 0, reason="what is one's own looks the same")
@pytest.mark.parametrize("closed", [True, False])
def test_what_nobody_may_look_into_is_named(closed):
    code = f"import ctypes; ctypes.CDLL(None).prctl(4, {int(not closed)}); print(); input()"
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", user=65534,
    ) as process:  # fmt: skip
        process.stdout.readline()
        seen = [tree.read(process.pid)]
        found = blockers.find(seen, root=process.pid, relay=process.pid, uid=65534)
        process.kill()
    assert ("not-dumpable" in {b.name for b in found}) == closed


def test_a_moment_in_the_kernel_stands_in_nobodys_way():
    """As on a file server, for each request."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            seen = replace(tree.read(process.pid), state="D")
            found = blockers.find([seen], root=process.pid, relay=process.pid, uid=os.geteuid())
        finally:
            process.kill()
    assert "in-kernel" not in {b.name for b in found}


def test_who_stays_in_the_kernel_is_in_the_way(monkeypatch):
    """The parent of a vfork(2) waits there until its child execs or ends."""
    monkeypatch.setattr(blockers, "_PATIENCE", 0.1)
    code = "import ctypes, time; ctypes.CDLL(None).vfork(); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        try:
            while (seen := tree.read(process.pid)).state != "D":
                pass
            found = blockers.find([seen], root=process.pid, relay=process.pid, uid=os.geteuid())
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert "in-kernel" in {b.name for b in found}
