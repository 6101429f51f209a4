"""Edits of CRIU images: the few fields we know change, everything else stays as it was."""

import ipaddress
import struct

import pytest

from slurm_reclaim.adapters.criu import images
from slurm_reclaim.errors import IntegrityError
from tests.unit.agent import by_google

MAGIC = struct.pack("<II", 0x54564319, 0x56303138)
LISTEN, ESTABLISHED, CLOSE = 10, 1, 7


def write(path, *messages):
    raw = [m if isinstance(m, bytes) else m.SerializeToString() for m in messages]
    path.write_bytes(MAGIC + b"".join(struct.pack("<I", len(r)) + r for r in raw))


def read(path, message):
    return [message.FromString(raw) for raw in images.entries(path)]


def words(address):
    packed = ipaddress.ip_address(address).packed
    return list(struct.unpack(f"<{len(packed) // 4}I", packed))


def tcp(id, source, target, state=ESTABLISHED):
    (src, sport), (dst, dport) = source, target
    file = by_google.message("File")(type=4, id=id)
    socket = file.isk
    socket.id = socket.ino = id
    socket.family = 2 if ipaddress.ip_address(src).version == 4 else 10
    socket.type, socket.proto, socket.state = 1, 6, state
    socket.src_port, socket.dst_port = sport, dport
    socket.src_addr.extend(words(src))
    socket.dst_addr.extend(words(dst))
    return file


def core(**changes):
    entry = by_google.message("Core")()
    creds = entry.thread_core.creds
    for name in ("uid", "euid", "suid", "fsuid", "gid", "egid", "sgid", "fsgid"):
        setattr(creds, name, 2001)
    creds.cap_bnd.extend([0x1FF, 0])
    creds.groups.extend([100])
    creds.secbits = 0
    for name, value in changes.items():
        if isinstance(value, list):
            del getattr(creds, name)[:]
            getattr(creds, name).extend(value)
        else:
            setattr(creds, name, value)
    return entry


def test_only_loopback_pairs_inside_the_image_stay_open(tmp_path):
    write(
        tmp_path / "files.img",
        tcp(1, ("127.0.0.1", 5000), ("127.0.0.1", 6000)),
        tcp(2, ("127.0.0.1", 6000), ("127.0.0.1", 5000)),
        tcp(3, ("127.0.0.1", 5001), ("127.0.0.1", 8888)),  # its peer stays on the node
        tcp(4, ("10.0.0.1", 5002), ("10.0.0.9", 443)),
        tcp(5, ("0.0.0.0", 8888), ("0.0.0.0", 0), LISTEN),
        tcp(6, ("::1", 7000), ("::1", 7001)),
        tcp(7, ("::1", 7001), ("::1", 7000)),
        tcp(8, ("::ffff:127.0.0.1", 9000), ("::ffff:127.0.0.1", 9001)),
        tcp(9, ("127.0.0.1", 9001), ("127.0.0.1", 9000)),
    )
    assert images.close_outside_tcp(tmp_path) == 2
    states = {
        f.id: (f.isk.state, f.isk.src_port)
        for f in read(tmp_path / "files.img", by_google.message("File"))
    }
    assert states[3] == states[4] == (CLOSE, 0)
    assert states[5] == (LISTEN, 8888)
    assert {states[i][0] for i in (1, 2, 6, 7, 8, 9)} == {ESTABLISHED}


def test_fields_we_do_not_know_survive_an_edit(tmp_path):
    unknown = b"\xf2\x07\x05hello"  # field 126, length-delimited
    raw = tcp(1, ("10.0.0.1", 5002), ("10.0.0.9", 443)).SerializeToString() + unknown
    write(tmp_path / "files.img", raw)
    images.close_outside_tcp(tmp_path)
    (after,) = images.entries(tmp_path / "files.img")
    assert unknown in after


def test_seccomp_is_left_to_the_restoring_process(tmp_path):
    entry = core()
    entry.thread_core.seccomp_mode = 2
    entry.thread_core.seccomp_filter = 1
    write(tmp_path / "core-300.img", entry)
    assert images.drop_seccomp(tmp_path) == 1
    (after,) = read(tmp_path / "core-300.img", by_google.message("Core"))
    assert after.thread_core.seccomp_mode == 0
    assert not after.thread_core.HasField("seccomp_filter")


@pytest.mark.parametrize("cut", [3, 9, 11, -1])
def test_a_cut_image_is_refused(tmp_path, cut):
    write(tmp_path / "core-300.img", core())
    path = tmp_path / "core-300.img"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(IntegrityError):
        list(images.entries(path))


@pytest.mark.parametrize("look", [images.listening, images.close_outside_tcp])
def test_an_address_that_is_too_short_is_named(tmp_path, look):
    socket = tcp(1, ("::1", 8888), ("::1", 0), LISTEN)
    connected = tcp(2, ("::1", 8888), ("::1", 9000))
    del socket.isk.src_addr[1:], connected.isk.dst_addr[1:]
    write(tmp_path / "files.img", socket, connected)
    with pytest.raises(IntegrityError, match=r"files\.img: an address of 1 words"):
        look(tmp_path)


def waiting(call, **registers):
    entry = core()
    entry.mtype = 1
    regs = entry.x86.gpregs
    regs.ax, regs.orig_ax, regs.ip, regs.cs = 2**64 - 4, call, 0x1002, 0x33
    for name, value in registers.items():
        setattr(regs, name, value)
    return entry


def after_resuming(tmp_path, entry):
    write(tmp_path / "core-300.img", entry)
    changed = images.resume_interrupted_calls(tmp_path)
    (after,) = read(tmp_path / "core-300.img", by_google.message("Core"))
    return changed, after.x86.gpregs


@pytest.mark.parametrize("call", [7, 202])
def test_a_timed_wait_is_made_again(tmp_path, call):
    changed, regs = after_resuming(tmp_path, waiting(call))
    assert (changed, regs.ax, regs.ip) == (1, call, 0x1000)


def test_a_sleep_goes_on_for_what_is_left(tmp_path):
    _, regs = after_resuming(tmp_path, waiting(35, di=0x10, si=0x20))
    assert (regs.di, regs.ax) == (0x20, 35)
    _, regs = after_resuming(tmp_path, waiting(230, si=0, dx=0x10, r10=0x20))
    assert (regs.dx, regs.ax) == (0x20, 230)


@pytest.mark.parametrize(
    "entry",
    [
        waiting(7, orig_ax=2**64 - 1),  # a signal handler has returned with EINTR
        waiting(7, ax=0),
        waiting(0),  # read()
        waiting(7, cs=0x23),  # a 32-bit program: other numbers
    ],
)
def test_other_calls_are_left_alone(tmp_path, entry):
    changed, regs = after_resuming(tmp_path, entry)
    assert (changed, regs.ip) == (0, 0x1002)
