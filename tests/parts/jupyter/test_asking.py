"""Servers that lie, dawdle or rave, over real sockets, as processes of another user."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from slurm_reclaim.adapters.jupyter import access, listeners
from slurm_reclaim.adapters.proc import owner
from slurm_reclaim.model.checkpoint import Credentials
from tests.parts.jupyter.session import UID, Session

NOBODY = Credentials(uid=UID, gid=UID, groups=(), cap_bounding=0, no_new_privs=False)


def test_a_server_that_answers(session: Session) -> None:
    assert session.read() is None
    session.serve("good")
    reading = session.read()
    assert reading is not None
    assert reading.value == 1.0
    assert reading.what == "kernel 333344 busy"
    assert reading.last == 1704153600.0
    assert session.said("asked") == ["asked GET /api/kernels?no_track_activity=1 HTTP/1.0"]


def test_no_kernel_is_not_use(session: Session) -> None:
    session.serve("none")
    reading = session.read()
    assert reading is not None
    assert (reading.value, reading.last, reading.what) == (0.0, 0.0, "no kernel")


def test_a_kernel_that_was_started_is_use_whatever_the_server_has_recorded(
    session: Session,
) -> None:
    """It may miss the first word of a kernel that it started anew. Once, not with each drift of
    the clocks."""
    before = time.time()
    session.serve("idle", env={"KERNEL": "1"})
    first, second = session.read(), session.read()
    assert first is not None
    assert second is not None
    assert before - 0.02 <= first.last <= time.time()
    assert first.what == "1 kernel idle, one started after kernel 1111 was used last"
    assert second.last == first.last


def test_no_use_in_the_future(session: Session) -> None:
    session.serve("future")
    before = time.time()
    reading = session.read()
    assert reading is not None
    assert before <= reading.last <= time.time()


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ("redirect", "302"),
        ("forbidden", "403"),
        ("failing", "500"),
        ("html", "no list of kernels"),
        ("object", "no list of kernels"),
        ("numbers", "no list of kernels"),
        ("types", "no list of kernels"),
        ("escape", "no list of kernels"),
        ("timeless", "no list of kernels"),
        ("deep", "no list of kernels"),
        ("strange", "kernel 1111 is in state thinking"),
        ("big", "never stops"),
        ("endless", "never stops"),
        ("gibberish", "does not speak HTTP"),
        ("continues", "does not speak HTTP"),
        ("short", "does not speak HTTP"),
        ("headers", "does not speak HTTP"),
        ("huge", "does not speak HTTP"),
        ("silence", "hangs up"),
        ("mute", "no answer"),
        ("drip", "no answer"),
        ("deaf", "does not listen"),
    ],
)
def test_nonsense_is_unknown_and_soon(session: Session, behaviour: str, why: str) -> None:
    session.serve(behaviour)
    began = time.monotonic()
    reading = session.read()
    assert time.monotonic() - began < 5
    assert reading is not None
    assert reading.value is None
    assert why in reading.what
    assert "\x1b" not in reading.what


def test_one_that_dawdles_leaves_no_time_for_others_but_is_named(session: Session) -> None:
    _, pid = session.serve("mute")
    session.serve("good")
    reading = session.read()
    assert reading is not None
    assert reading.value is None
    assert f"Jupyter server {pid} can't be asked: no answer" in reading.what


def test_a_refusal_is_not_asked_for_again_and_again(session: Session) -> None:
    session.serve("forbidden")
    readings = [session.read() for _ in range(4)]
    told = {(r.value, r.what.partition(": ")[2]) for r in readings if r}
    # on a busy machine one look may still be under way at the next
    assert told - {(None, "the last look has not ended")} == {(None, "403")}
    assert len(session.said("asked")) == 1


def test_the_environment_has_no_say(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    session.serve("good")
    reading = session.read()
    assert reading is not None
    assert reading.value == 1.0


# -- whose socket, whose file -------------------------------------------------------------------


def write_info(session: Session, pid: int, **facts: object) -> Path:
    session.runtime.mkdir(parents=True, exist_ok=True)
    path = session.runtime / f"jpserver-{pid}.json"
    path.write_text(json.dumps({"pid": pid, "token": "from-file", "base_url": "/here/", **facts}))
    return path


def test_token_and_path_of_the_info_file(session: Session) -> None:
    port, pid = session.serve("good")
    write_info(session, pid, port=port)
    assert session.read().value == 1.0  # type: ignore[union-attr]
    asked = (
        "asked GET /here/api/kernels?no_track_activity=1 HTTP/1.0 Authorization: token from-file"
    )
    assert session.said("asked") == [asked]


def test_an_info_file_of_another_server_with_the_same_pid(session: Session) -> None:
    port, pid = session.serve("good", env={"JUPYTER_TOKEN": "own"})
    write_info(session, pid, port=port + 1)
    assert session.read().value == 1.0  # type: ignore[union-attr]
    assert session.said("asked") == [
        "asked GET /api/kernels?no_track_activity=1 HTTP/1.0 Authorization: token own"
    ]


def test_an_info_file_that_another_server_overwrites(session: Session) -> None:
    port, pid = session.serve("good")
    write_info(session, pid, port=port, token="own")
    assert session.read().value == 1.0  # type: ignore[union-attr]
    write_info(session, pid, port=port, token="another's")
    assert session.read().value == 1.0  # type: ignore[union-attr]
    assert ["token own" in line for line in session.said("asked")] == [True, True]


def test_a_port_in_a_file_leads_nowhere_else(session: Session) -> None:
    """A service of somebody else, named in the file as the server's."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.5)
        _, pid = session.serve("deaf")
        write_info(session, pid, port=other.getsockname()[1])
        reading = session.read()
        assert reading is not None
        assert reading.value is None
        with pytest.raises(TimeoutError):
            other.accept()


def test_a_socket_of_another_network_namespace_leads_nowhere_else(session: Session) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.5)
        port = other.getsockname()[1]
        session.serve("good", f"--port={port}", netns=True)
        reading = session.read()
        assert reading is not None
        assert reading.value is None
        assert "does not listen" in reading.what
        with pytest.raises(TimeoutError):
            other.accept()


@pytest.mark.parametrize("odd", ["fifo", "link", "big", "folder", "nonsense", "deep", "other-pid"])
def test_odd_info_files(session: Session, odd: str) -> None:
    port, pid = session.serve("good", env={"JUPYTER_TOKEN": "own"})
    path = write_info(session, pid, port=port)
    if odd == "other-pid":
        path.write_text(path.read_text().replace(f'"pid": {pid}', '"pid": 1'))
    else:
        path.unlink()
    if odd == "fifo":
        os.mkfifo(path)
    elif odd == "link":
        other = session.home / "other.json"
        other.write_text(json.dumps({"pid": pid, "port": port, "token": "linked"}))
        path.symlink_to(other)
    elif odd == "big":
        path.write_text(json.dumps({"pid": pid, "port": port, "x": "y" * (1 << 20)}))
    elif odd == "folder":
        path.mkdir()
    elif odd == "nonsense":
        path.write_bytes(b"\xff\x00{")
    elif odd == "deep":
        path.write_text("[" * 60_000)
    began = time.monotonic()
    reading = session.read()
    assert time.monotonic() - began < 3
    assert reading is not None
    assert reading.value == 1.0
    assert "token own" in session.said("asked")[0]


def test_what_the_owner_may_not_read_is_not_read(session: Session, tmp_path: Path) -> None:
    """The runtime directory leads, by a link, to where only root gets."""
    port, pid = session.serve("good")
    path = write_info(session, pid, port=port)
    secret = tmp_path / "secret"
    session.runtime.rename(secret)
    secret.chmod(0o700)
    (secret / path.name).chmod(0o600)
    session.runtime.symlink_to(secret)
    assert session.read().value == 1.0  # type: ignore[union-attr]
    assert "from-file" not in session.said("asked")[0]


def test_header_and_path_of_a_file_can_smuggle_nothing(session: Session) -> None:
    port, pid = session.serve("good")
    write_info(session, pid, port=port, token="a\r\nX-Evil: 1", base_url="/a HTTP/1.0\r\nX-Evil: 2")
    assert session.read().value == 1.0  # type: ignore[union-attr]
    assert session.said("asked") == ["asked GET /api/kernels?no_track_activity=1 HTTP/1.0"]


def test_a_unix_socket(session: Session) -> None:
    path = session.home / "j.sock"
    session.serve("good", f"--sock={path}")
    assert session.read().value == 1.0  # type: ignore[union-attr]


@pytest.mark.parametrize("what", ["socket", "link", "file", "missing"])
def test_the_path_of_a_unix_socket_leads_nowhere_else(session: Session, what: str) -> None:
    path, theirs = session.home / "j.sock", session.home / "theirs"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(theirs))
        other.listen()
        other.settimeout(0.5)
        theirs.chmod(0o777)
        session.serve("good", f"--sock={path}")
        path.unlink()
        if what == "socket":
            theirs.rename(path)
        elif what == "link":
            path.symlink_to(theirs)
        elif what == "file":
            path.touch()
        reading = session.read()
        assert reading is not None
        assert reading.value is None
        try:
            client, _ = other.accept()
        except TimeoutError:
            return
        with client:
            assert client.recv(10) == b"", "it said something to the wrong one"


# -- rights -------------------------------------------------------------------------------------


def test_a_thread_takes_the_owners_rights_alone(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has rights to give up")
    path = tmp_path / "root-only"
    path.touch(mode=0o600)
    seen: list[object] = []

    def work() -> None:
        owner.become(NOBODY)
        try:
            os.close(os.open(path, os.O_RDONLY))
            seen.append("opened")
        except PermissionError:
            seen.append("refused")
        status = Path("/proc/thread-self/status").read_text()
        seen.append(
            [line.split()[1:] for line in status.splitlines() if line[:4] in ("Uid:", "Gid:")]
        )

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    user = str(UID)
    assert seen == ["refused", [["0", user, "0", user], ["0", user, "0", user]]]
    assert os.geteuid() == 0
    path.read_bytes()


def test_links_stay_inside(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("inside")
    (tmp_path / "link").symlink_to("/file")
    (tmp_path / "via").symlink_to("/")
    (tmp_path / "self").symlink_to("/proc/self/root")
    root = os.open(tmp_path, os.O_PATH)
    try:
        fd = owner.open_within(root, "/via/../../file", os.O_RDONLY)
        assert owner.read_bounded(fd, 100) == b"inside"
        os.close(fd)
        for path in ("/link", "/self/etc/passwd", "/nothing"):
            with pytest.raises(OSError, match=r"symbolic link|No such file|cross-device"):
                owner.open_within(root, path, os.O_RDONLY)
    finally:
        os.close(root)


# -- the kernel's tables ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_listening_sockets(family: socket.AddressFamily, address: str) -> None:
    with socket.socket(family) as server, socket.socket(family) as silent:
        try:
            server.bind((address, 0))
        except OSError:
            pytest.skip(f"no {address} here")
        silent.bind((address, 0))
        server.listen()
        inode = os.fstat(server.fileno()).st_ino
        found = listeners.tcp()
        assert found[inode].reached_at == (address, server.getsockname()[1])
        assert os.fstat(silent.fileno()).st_ino not in found
        assert inode in listeners.sockets_of(Path("/proc/self"))
    assert inode not in listeners.tcp()


def test_options() -> None:
    words = ("--ServerApp.port=1", "--ip", "x", "--IdentityProvider.token", "t", "--transport=9")
    assert access.option(words, "port") == "1"
    assert access.option(words, "token") == "t"
    assert access.option(words, "sock") == ""
    assert access.option(("--token",), "token") == ""
