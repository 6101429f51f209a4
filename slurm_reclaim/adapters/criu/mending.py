"""What CRIU saves and could not bring back, or not as it was, put right in a private copy of the
images; and what can't be put right, found before a checkpoint is made of it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from slurm_reclaim.adapters.criu.images import both_inside, edit, ends, messages, parsed
from slurm_reclaim.adapters.proc.repair import Ends
from slurm_reclaim.errors import DumpFailed, IntegrityError

_HEAD = 8  # bytes of magic numbers
# States of include/net/tcp_states.h: one direction is shut; what is sent waits for its answer.
_ESTABLISHED, _FIN_WAIT2, _CLOSE_WAIT = 1, 5, 8
_PASSING = frozenset({4, 9, 11})  # FIN_WAIT1, LAST_ACK, CLOSING


def mend(images: Path, uid: int) -> list[Ends]:
    """What is still to be shut when all is back (`open_again`)."""
    keep_deleted_sockets(images, uid)
    rearm_timers(images)
    for path in sorted(images.glob("tcp-stream-*.img")):
        resend(path)
    return open_again(images)


def keep_deleted_sockets(images: Path, uid: int) -> int:
    """Of a Unix socket whose name was deleted CRIU saves root for its owner, and can't give it away
    as the user `uid`: leave it whoever makes it. Their number."""

    def forget(entry: Any) -> bool:
        if not entry.HasField("usk") or not entry.usk.HasField("file_perms"):
            return False
        if entry.usk.file_perms.uid == uid:
            return False
        entry.usk.ClearField("file_perms")
        return True

    return edit(images / "files.img", "File", forget)


def rearm_timers(images: Path) -> int:
    """A periodic timerfd that nobody has read since it expired has no time left, and a timer that
    is set to none is off: let it expire at once. Their number."""

    def rearm(entry: Any) -> bool:
        if not entry.HasField("tfd"):
            return False
        timer = entry.tfd
        if not timer.ticks or timer.vsec or timer.vnsec or not (timer.isec or timer.insec):
            return False
        timer.vnsec = 1
        return True

    return edit(images / "files.img", "File", rearm)


def resend(path: Path) -> bool:
    """What a connection has not sent yet CRIU sends when its peer may not be there, which ends the
    connection. As if it had been sent and lost, the kernel sends it by and by."""

    def sent(stream: Any) -> bool:
        waiting = bool(stream.unsq_len)
        stream.unsq_len = 0
        return waiting

    return _edit_stream(path, sent)


def _edit_stream(path: Path, change: Callable[[Any], bool]) -> bool:
    """Its one entry; what is in the connection's queues follows that."""
    data = path.read_bytes()
    rest = _end(path, data, _HEAD)
    stream = parsed(path, data[_HEAD + 4 : rest], "TcpStream")
    changed = change(stream)
    if changed:
        raw = stream.SerializeToString()
        path.write_bytes(data[:_HEAD] + struct.pack("<I", len(raw)) + raw + data[rest:])
    return changed


def open_again(images: Path) -> list[Ends]:
    """Connections inside of the session of which one direction is shut: to bring them back CRIU
    would need a raw socket. They come back open, and the ends that are returned are to be shut
    again (repair.shut); what is on its way in them stays."""
    inside = both_inside(images)
    found: list[Ends] = []

    def reopen(entry: Any) -> bool:
        if not entry.HasField("isk") or not inside(entry.isk):
            return False
        socket = entry.isk
        if socket.state not in (_FIN_WAIT2, _CLOSE_WAIT):
            return False
        if socket.state == _FIN_WAIT2:
            found.append(ends(socket))
        without = _fin_not_sent if socket.state == _FIN_WAIT2 else _fin_not_received
        _edit_stream(images / f"tcp-stream-{socket.ino:x}.img", without)
        socket.state = _ESTABLISHED
        socket.ClearField("shutdown")
        return True

    edit(images / "files.img", "File", reopen)
    return found


def _fin_not_sent(stream: Any) -> bool:
    """A FIN counts as a byte of those that are sent, and received, and has room in the window."""
    stream.outq_seq = (stream.outq_seq - 1) % 2**32
    return True


def _fin_not_received(stream: Any) -> bool:
    stream.inq_seq = (stream.inq_seq - 1) % 2**32
    if stream.HasField("rcv_wup"):
        stream.rcv_wup = (stream.rcv_wup - 1) % 2**32
        stream.rcv_wnd += 1
    return True


def see_closing(images: Path) -> None:
    """Raises DumpFailed where a connection inside of the session is between two states."""
    inside = both_inside(images)
    for entry in messages(images / "files.img", "File"):
        if entry.HasField("isk") and entry.isk.state in _PASSING and inside(entry.isk):
            raise DumpFailed(f"the connection from port {entry.isk.src_port} is just being closed")


def see_in_flight(images: Path) -> None:
    """Raises DumpFailed where a Unix socket waits in another one's queue to be received and has
    descriptors in its own queue: no restore could make these (CRIU 4.2.1)."""
    path = images / "sk-queues.img"
    if not path.exists():
        return
    sent: set[int] = set()
    holding: set[int] = set()
    for packet in _packets(path):
        for scm in packet.scm:
            sent |= set(scm.rights)
            holding.add(packet.id_for)
    opened = {
        each.id for table in images.glob("fdinfo-*.img") for each in messages(table, "FdInfo")
    }
    if sent & holding - opened:
        raise DumpFailed(
            "a socket with descriptors to be received (SCM_RIGHTS) is itself one to be received"
        )


def _packets(path: Path) -> Iterator[Any]:
    """The entries of the queues; each is followed by the bytes that were sent."""
    data = path.read_bytes()
    at = _HEAD
    while at < len(data):
        end = _end(path, data, at)
        packet = parsed(path, data[at + 4 : end], "Packet")
        yield packet
        at = end + packet.length


def _end(path: Path, data: bytes, at: int) -> int:
    """Where the entry ends that begins at `at`. Raises IntegrityError."""
    end = at + 4 + int.from_bytes(data[at : at + 4], "little")
    if end > len(data):
        raise IntegrityError(f"{path.name} ends inside an entry")
    return end
