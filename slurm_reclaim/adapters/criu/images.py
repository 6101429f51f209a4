"""Reading and editing CRIU's image files.

A file is two little-endian magic words followed by entries, each a 32-bit length and a protobuf
message (CRIU documentation, "Images"). Edits are only ever made to a private copy.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from slurm_reclaim.adapters.criu.schema import message
from slurm_reclaim.adapters.proc.repair import Ends
from slurm_reclaim.errors import IntegrityError

_COMMON_MAGIC = 0x54564319
_TCP, _UDP, _LISTEN, _CLOSE = 6, 17, 10, 7
_AF_INET = 2
_X86_64, _CODE_64, _SYSCALL_BYTES = 1, 0x33, 2
_EINTR = 2**64 - 4
_NANOSLEEP, _CLOCK_NANOSLEEP = 35, 230
# poll, futex and the two sleeps: the calls with a restart block (ERESTART_RESTARTBLOCK)
_TIMED_WAITS = frozenset({7, _NANOSLEEP, 202, _CLOCK_NANOSLEEP})


def entries(path: Path) -> Iterator[bytes]:
    """The raw entries of an image file. Raises IntegrityError where it is cut short."""
    data = path.read_bytes()
    if len(data) < 8 or struct.unpack_from("<I", data)[0] != _COMMON_MAGIC:
        raise IntegrityError(f"{path.name} is not a CRIU image")
    at = 8
    while at < len(data):
        if at + 4 > len(data):
            raise IntegrityError(f"{path.name} ends inside an entry")
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
        if at + size > len(data):
            raise IntegrityError(f"{path.name} ends inside an entry")
        yield data[at : at + size]
        at += size


def parsed(path: Path, raw: bytes, kind: str) -> Any:
    """The message `kind` that an entry of this image is. Raises IntegrityError naming the image."""
    try:
        return message(kind).FromString(raw)
    except IntegrityError as error:
        raise IntegrityError(f"{path.name}: {error.message}") from None


def messages(path: Path, kind: str) -> Iterator[Any]:
    """The entries of an image file, each a message `kind`. Raises IntegrityError."""
    for raw in entries(path):
        yield parsed(path, raw, kind)


def edit(path: Path, kind: str, change: Callable[[Any], bool]) -> int:
    """Rewrite the entries for which `change` says that it changed them; their number. Raises
    IntegrityError."""
    head = path.read_bytes()[:8]
    out, changed = [head], 0
    for raw in entries(path):
        entry = parsed(path, raw, kind)
        if change(entry):
            raw = entry.SerializeToString()
            changed += 1
        out.append(struct.pack("<I", len(raw)) + raw)
    if changed:
        path.write_bytes(b"".join(out))
    return changed


def _address(family: int, words: Sequence[int]) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """CRIU keeps addresses as 32-bit words in memory order, one or four of them. Raises
    IntegrityError."""
    count = 1 if family == _AF_INET else 4
    if len(words) < count:
        raise IntegrityError(f"files.img: an address of {len(words)} words")
    packed = struct.pack(f"<{count}I", *words[:count])
    return ipaddress.IPv4Address(packed) if count == 1 else ipaddress.IPv6Address(packed)


def _end(family: int, words: Sequence[int], port: int) -> tuple[str, int]:
    address = _address(family, words)
    return str(getattr(address, "ipv4_mapped", None) or address), port


def ends(socket: Any) -> Ends:
    """Of an internet socket: its own address and port, and its peer's."""
    here = _end(socket.family, socket.src_addr, socket.src_port)
    return here, _end(socket.family, socket.dst_addr, socket.dst_port)


def both_inside(images: Path) -> Callable[[Any], bool]:
    """Whether a TCP socket of these images is connected over loopback to one in them, too."""
    known = set()
    for entry in messages(images / "files.img", "File"):
        if entry.HasField("isk") and entry.isk.proto == _TCP and entry.isk.state != _LISTEN:
            known.add(ends(entry.isk))

    def inside(socket: Any) -> bool:
        if socket.proto != _TCP or not socket.src_port:
            return False
        here, there = ends(socket)
        return (there, here) in known and ipaddress.ip_address(there[0]).is_loopback

    return inside


def close_outside_tcp(images: Path) -> int:
    """Mark TCP sockets closed whose peer isn't in the image itself; their number.

    Loopback pairs inside the session survive the restore. A socket whose other end stays behind,
    on another host or in another process of the same node, can't; it comes back closed, with its
    ports cleared because the kernel would refuse to bind them again.
    """
    inside = both_inside(images)

    def close(entry: Any) -> bool:
        if not entry.HasField("isk"):
            return False
        socket = entry.isk
        if socket.proto != _TCP or socket.state == _LISTEN or not socket.src_port:
            return False
        if inside(socket):
            return False
        socket.state, socket.src_port, socket.dst_port = _CLOSE, 0, 0
        return True

    return edit(images / "files.img", "File", close)


def listening(images: Path) -> tuple[str, ...]:
    """Addresses that will be bound for whoever wants to talk: `tcp/127.0.0.1:8888`, sorted."""
    found = set()
    for entry in messages(images / "files.img", "File"):
        if not entry.HasField("isk") or not entry.isk.src_port:
            continue
        socket = entry.isk
        # A datagram socket with a peer has a port that the kernel gave it.
        waits = not socket.dst_port if socket.proto == _UDP else socket.state == _LISTEN
        if socket.proto in (_TCP, _UDP) and waits:
            kind = "udp" if socket.proto == _UDP else "tcp"
            address = _address(socket.family, socket.src_addr)
            host = f"[{address}]" if address.version == 6 else str(address)
            found.add(f"{kind}/{host}:{socket.src_port}")
    return tuple(sorted(found))


def take_as_they_are(images: Path, names: Collection[bytes]) -> int:
    """Let these files be opened whatever size and mode they have by now; how many there were."""

    def forget(entry: Any) -> bool:
        if not entry.HasField("reg") or entry.reg.name not in names:
            return False
        entry.reg.ClearField("size")
        entry.reg.ClearField("mode")
        return True

    return edit(images / "files.img", "File", forget)


def drop_seccomp(images: Path) -> int:
    """Take the filter out of the tasks: they inherit it from the process that restores them."""

    def drop(entry: Any) -> bool:
        changed = False
        if entry.HasField("thread_core") and entry.thread_core.seccomp_mode:
            entry.thread_core.seccomp_mode = 0
            entry.thread_core.ClearField("seccomp_filter")
            changed = True
        if entry.HasField("tc") and entry.tc.old_seccomp_mode:
            entry.tc.old_seccomp_mode = 0
            entry.tc.ClearField("old_seccomp_filter")
            changed = True
        return changed

    return sum(edit(path, "Core", drop) for path in sorted(images.glob("core-*.img")))


def resume_interrupted_calls(images: Path) -> int:
    """Let timed waits go on instead of failing with EINTR; their number.

    CRIU can't save the kernel's restart block, so a task that was waiting in poll(), nanosleep()
    and the like comes back with EINTR, which many programs take for a signal and end. Linux would
    have gone on waiting: the call is made again. A sleep goes on for what was left, which the
    kernel has written to the caller's own `rem` (clock_nanosleep(2)); other waits start over.
    """

    def again(entry: Any) -> bool:
        if entry.mtype != _X86_64 or not entry.HasField("x86"):
            return False
        regs = entry.x86.gpregs
        # A task that was told of EINTR by a signal handler's return has orig_ax -1.
        if regs.ax != _EINTR or regs.orig_ax not in _TIMED_WAITS or regs.cs != _CODE_64:
            return False
        if regs.orig_ax == _NANOSLEEP and regs.si:
            regs.di = regs.si
        if regs.orig_ax == _CLOCK_NANOSLEEP and regs.r10 and not regs.si:
            regs.dx = regs.r10
        regs.ax, regs.ip = regs.orig_ax, regs.ip - _SYSCALL_BYTES
        return True

    return sum(edit(path, "Core", again) for path in sorted(images.glob("core-*.img")))


def highest_pid(images: Path) -> int:
    """The highest PID or thread id in the image."""
    highest = 0
    for item in messages(images / "pstree.img", "PsTree"):
        # The first thread is the process itself; of a zombie CRIU writes any number there.
        highest = max(highest, item.pid, item.pgid, item.sid, *item.threads[1:])
    return highest
