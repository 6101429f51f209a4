"""What is put right in a private copy of CRIU's images."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from slurm_reclaim.adapters.criu import mending
from slurm_reclaim.errors import DumpFailed, IntegrityError
from tests.unit.agent import by_google
from tests.unit.agent.test_images import MAGIC, read, words, write

FILE = by_google.message("File")


def connection(ino: int, here: int, there: int, state: int, host: str = "127.0.0.1") -> Any:
    address = words(host)
    return FILE(isk={
        "id": ino, "ino": ino, "family": 2, "proto": 6, "state": state, "shutdown": 2,
        "src_port": here, "dst_port": there, "src_addr": address, "dst_addr": address,
    })  # fmt: skip


def stream(folder: Path, ino: int, queues: bytes = b"", **more: int) -> Path:
    path = folder / f"tcp-stream-{ino:x}.img"
    raw = by_google.message("TcpStream")(**more).SerializeToString()
    path.write_bytes(MAGIC + struct.pack("<I", len(raw)) + raw + queues)
    return path


def opened(path: Path) -> tuple[Any, bytes]:
    data = path.read_bytes()
    (size,) = struct.unpack_from("<I", data, 8)
    return by_google.message("TcpStream").FromString(data[12 : 12 + size]), data[12 + size :]


def test_a_half_closed_pair_comes_back_open_and_is_told(tmp_path: Path) -> None:
    write(tmp_path / "files.img", connection(16, 1000, 2000, 5), connection(17, 2000, 1000, 8))
    sender = stream(tmp_path, 16, b"queue", inq_seq=50, outq_seq=0)
    receiver = stream(tmp_path, 17, inq_seq=0, outq_seq=50, rcv_wnd=9, rcv_wup=7)
    shut = mending.mend(tmp_path, 2001)
    assert shut == [(("127.0.0.1", 1000), ("127.0.0.1", 2000))]
    for entry in read(tmp_path / "files.img", FILE):
        assert (entry.isk.state, entry.isk.HasField("shutdown")) == (1, False)
    one, queue = opened(sender)
    assert (one.inq_seq, one.outq_seq, queue) == (50, 2**32 - 1, b"queue")
    other, _ = opened(receiver)
    assert (other.inq_seq, other.outq_seq, other.rcv_wnd, other.rcv_wup) == (2**32 - 1, 50, 10, 6)


def test_a_half_closed_one_to_elsewhere_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "files.img", connection(16, 1000, 2000, 8))
    assert mending.mend(tmp_path, 2001) == []


@pytest.mark.parametrize("state", [4, 9, 11])
def test_one_that_is_just_being_closed_is_no_checkpoint(tmp_path: Path, state: int) -> None:
    write(tmp_path / "files.img", connection(16, 1000, 2000, state), connection(17, 2000, 1000, 1))
    with pytest.raises(DumpFailed, match="1000"):
        mending.see_closing(tmp_path)


def test_unsent_bytes_are_taken_for_lost_ones(tmp_path: Path) -> None:
    path = stream(tmp_path, 16, b"bytes", unsq_len=5, outq_seq=70)
    assert mending.resend(path)
    found, queue = opened(path)
    assert (found.unsq_len, found.outq_seq, queue) == (0, 70, b"bytes")
    assert not mending.resend(path)


@pytest.mark.parametrize("rest", [b"", b"\1\0", struct.pack("<I", 3) + b"\x10\1"])
def test_a_stream_that_is_cut_short(tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "tcp-stream-1.img"
    path.write_bytes(MAGIC + rest)
    with pytest.raises(IntegrityError, match=r"tcp-stream-1\.img ends inside"):
        mending.resend(path)


def test_queues_that_are_cut_short(tmp_path: Path) -> None:
    packets(tmp_path, (1, b"plain", []))
    path = tmp_path / "sk-queues.img"
    path.write_bytes(path.read_bytes() + b"\1\0")
    with pytest.raises(IntegrityError, match=r"sk-queues\.img ends inside"):
        mending.see_in_flight(tmp_path)


def test_only_sockets_of_others_lose_their_owner(tmp_path: Path) -> None:
    mine, gone = {"mode": 0o755, "uid": 2001, "gid": 5}, {"mode": 0, "uid": 0, "gid": 0}
    write(tmp_path / "files.img", FILE(usk={"file_perms": mine}), FILE(usk={"file_perms": gone}))
    assert mending.keep_deleted_sockets(tmp_path, 2001) == 1
    kept, lost = read(tmp_path / "files.img", FILE)
    assert kept.usk.file_perms.gid == 5
    assert not lost.usk.HasField("file_perms")


@pytest.mark.parametrize(
    ("timer", "left"),
    [({"ticks": 1, "insec": 5}, 1), ({"ticks": 1, "isec": 5}, 1), ({"ticks": 1}, 0),
     ({"ticks": 0, "insec": 5}, 0), ({"ticks": 1, "insec": 5, "vnsec": 3}, 3)],
)  # fmt: skip
def test_a_periodic_timer_that_expired_goes_on(tmp_path: Path, timer: Any, left: int) -> None:
    write(tmp_path / "files.img", FILE(tfd=timer))
    mending.rearm_timers(tmp_path)
    assert read(tmp_path / "files.img", FILE)[0].tfd.vnsec == left


def packets(folder: Path, *each: tuple[int, bytes, list[int]]) -> None:
    out = MAGIC
    for owner, sent, rights in each:
        packet = by_google.message("Packet")(id_for=owner, length=len(sent))
        if rights:
            packet.scm.add(rights=rights)
        raw = packet.SerializeToString()
        out += struct.pack("<I", len(raw)) + raw + sent
    (folder / "sk-queues.img").write_bytes(out)


def test_descriptors_in_a_socket_that_is_itself_on_its_way(tmp_path: Path) -> None:
    mending.see_in_flight(tmp_path)
    packets(tmp_path, (1, b"plain", []), (2, b"a file", [9]))
    mending.see_in_flight(tmp_path)
    packets(tmp_path, (1, b"plain", []), (2, b"the socket", [3]), (3, b"a file", [9]))
    with pytest.raises(DumpFailed, match="SCM_RIGHTS"):
        mending.see_in_flight(tmp_path)
    write(tmp_path / "fdinfo-2.img", by_google.message("FdInfo")(id=3))
    mending.see_in_flight(tmp_path)
