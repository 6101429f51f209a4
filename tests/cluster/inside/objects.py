"""Kernel objects that a program may have, for test_kernel_objects.py.

objects.py FILE GROUP...: makes those of the groups, then counts into FILE as counter.py does. Once
FILE.check is there, each is looked at and FILE.seen says what is not as it was, as JSON. Those of
the group `refused` are children of their own, which end at SIGTERM.
"""

import ctypes
import fcntl
import json
import mmap
import os
import random
import signal
import socket
import struct
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
PAGE = 4096
GROUPS = {"kept": {}, "refused": {}, "failed": {}}
held = []  # whatever must not be closed


def group(name):
    def add(make):
        GROUPS[name][make.__name__] = make
        return make

    return add


def call(number, *words):
    got = libc.syscall(ctypes.c_long(number), *words)
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got


def connected(family=socket.AF_INET, host="127.0.0.1"):
    server = socket.create_server((host, 0), family=family)
    here = socket.create_connection(server.getsockname()[:2])
    there, _ = server.accept()
    held.append((server, here, there))
    there.settimeout(5), here.settimeout(5)
    return here, there


def ticking(clock):
    timer = call(283, clock, os.O_NONBLOCK)
    call(286, timer, 0, struct.pack("4q", 0, 100_000_000, 0, 100_000_000), None)
    return timer


# -- what comes back ------------------------------------------------------------------------------


def half_closed(*where):
    here, there = connected(*where)
    here.send(b"question")
    there.send(b"unread")
    here.shutdown(socket.SHUT_WR)

    def look():
        got = [there.recv(9), there.recv(9), there.send(b"answer"), here.recv(6), here.recv(9)]
        there.close()
        return [*got, here.recv(9)] == [b"question", b"", 6, b"unread", b"answer", b""] or got

    return look


@group("kept")
def half_closed_connection():
    return half_closed()


@group("kept")
def half_closed_connection_of_ipv6():
    return half_closed(socket.AF_INET6, "::1")


@group("kept")
def a_connection_with_more_than_its_peer_takes():
    here, there = connected()
    here.setblocking(False)
    sent = bytearray()
    try:
        while True:
            piece = random.randbytes(1 << 16)
            sent += piece[: here.send(piece)]
    except BlockingIOError:
        pass

    def look():
        got = bytearray()
        while len(got) < len(sent):
            got += there.recv(1 << 16)
        return got == sent

    return look


@group("kept")
def unix_sockets_whose_names_are_gone():
    here, letter = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server, box = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    for bound, other in ((server, here), (box, letter)):
        name = os.path.abspath(str(bound.fileno()))
        bound.bind(name)
        if bound is server:
            server.listen()
        other.connect(name)
        os.unlink(name)
    there, _ = server.accept()
    here.send(b"x"), letter.send(b"y")
    held.append((server, here, letter))
    return lambda: (there.recv(9), box.recv(9)) == (b"x", b"y")


@group("kept")
def descriptors_on_their_way():
    here, there = socket.socketpair()
    with open("sent", "w+") as file:
        file.write("inside")
        file.flush()
        socket.send_fds(here, [b"one"], [file.fileno()])
    socket.send_fds(here, [b"itself"], [there.fileno()])
    held.append(here)

    def look():
        (first, files, *_), (second, more, *_) = (socket.recv_fds(there, 9, 1) for _ in range(2))
        return (first, os.pread(files[0], 9, 0), second, len(more)) == (
            b"one",
            b"inside",
            b"itself",
            1,
        )

    return look


@group("kept")
def a_timer_that_nobody_has_read():
    timer = ticking(time.CLOCK_MONOTONIC)
    time.sleep(0.3)

    def look():
        os.read(timer, 8)
        time.sleep(0.65)
        (ticks,) = struct.unpack("q", os.read(timer, 8))
        return ticks >= 4 or ticks

    return look


@group("kept")
def asynchronous_input_and_output():
    ring = ctypes.c_ulong(0)
    call(206, 16, ctypes.byref(ring))
    text = ctypes.create_string_buffer(b"aio!")

    def look():
        file = os.open("aio", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        words = (7, 0, 0, 1, 0, file, ctypes.addressof(text), 4, 0, 0, 0, 0)
        order = ctypes.create_string_buffer(struct.pack("<QIIHhIQqqQII", *words))
        orders = (ctypes.c_void_p * 1)(ctypes.addressof(order))
        call(209, ring, ctypes.c_long(1), orders)
        done = call(
            208, ring, ctypes.c_long(1), ctypes.c_long(1), ctypes.create_string_buffer(32), None
        )
        return (done, os.pread(file, 9, 0)) == (1, b"aio!")

    return look


@group("kept")
def sealed_memory_with_an_odd_name():
    memory = os.memfd_create("a\nb\x1b", os.MFD_ALLOW_SEALING)
    os.write(memory, b"sealed")
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, 0xF)
    return lambda: (
        (os.pread(memory, 9, 0), fcntl.fcntl(memory, fcntl.F_GET_SEALS)) == (b"sealed", 0xF)
    )


@group("kept")
def files_with_odd_names():
    os.makedirs(b"o\n\x1b]0;x\x07\xff", exist_ok=True)
    maps = []
    for name in (b"a\nb", b"\x1b[31m", b"\xff\xfe", b"n" * 255, b"\\012"):
        file = os.open(b"o\n\x1b]0;x\x07\xff/" + name, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(file, PAGE)
        maps.append((mmap.mmap(file, PAGE), name[:1]))
        maps[-1][0][:1] = name[:1]
    return lambda: all(each[:1] == first for each, first in maps)


@group("kept")
def signals_with_values():
    signal.pthread_sigmask(signal.SIG_BLOCK, [40])
    for value in (11, 22):
        info = ctypes.create_string_buffer(128)
        struct.pack_into("<iiiiiiq", info, 0, 40, 0, -1, 0, os.getpid(), os.getuid(), value)
        call(129, os.getpid(), 40, info)

    def look():
        got = []
        for _ in range(2):
            info, mask = ctypes.create_string_buffer(128), ctypes.c_uint64(1 << 39)
            call(128, ctypes.byref(mask), info, struct.pack("qq", 1, 0), ctypes.c_long(8))
            got.append(struct.unpack_from("<q", info, 24)[0])
        return got == [11, 22] or got

    return look


@group("kept")
def a_terabyte_with_two_pages():
    memory = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
    memory[:3], memory[-3:] = b"one", b"two"
    return lambda: (memory[:3], memory[-3:]) == (b"one", b"two")


# -- what is refused by name ----------------------------------------------------------------------


@group("refused")
def eventfd_semaphore():
    held.append(os.eventfd(3, os.EFD_SEMAPHORE))


@group("refused")
def timerfd_clock():
    ticking(time.CLOCK_BOOTTIME)


@group("refused")
def thread_left():
    threading.Thread(target=time.sleep, args=(600,)).start()
    os.write(held.pop(), b"x")
    libc.syscall(ctypes.c_long(60), 0)  # exit(2): of this thread alone


def by_a_thread(work):
    done = threading.Event()

    def run():
        work()
        done.set()
        time.sleep(600)

    threading.Thread(target=run, daemon=True).start()
    assert done.wait(10)


@group("refused")
def thread_private():
    by_a_thread(lambda: libc.unshare(0x400))  # CLONE_FILES


@group("refused")
def thread_private_directory():
    by_a_thread(lambda: libc.unshare(0x200))  # CLONE_FS


@group("refused")
def seccomp_of_a_thread():
    allow = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000), 8)
    program = ctypes.create_string_buffer(struct.pack("H6xQ", 1, ctypes.addressof(allow)), 16)
    by_a_thread(lambda: (libc.prctl(38, 1, 0, 0, 0), libc.prctl(22, 2, program, 0, 0)))


@group("refused")
def thread_pidfd():
    by_a_thread(lambda: held.append(call(434, threading.get_native_id(), 0x80)))


@group("refused")
def packet_pipe():
    held.append(os.pipe2(os.O_DIRECT))


@group("refused")
def many_pipes():
    held.extend(os.pipe() for _ in range(1100))


@group("refused")
def no_descriptor_left():
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, 100))


@group("refused")
def high_descriptor():
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.dup2(0, hard - 1)


@group("refused")
def path_too_long():
    for _ in range(25):
        os.makedirs("d" * 200, exist_ok=True)
        os.chdir("d" * 200)


@group("refused")
def cgroup_file():
    with open("/proc/self/cgroup") as file:
        lines = [line.strip().split(":", 2) for line in file]
    for _, kinds, path in lines:
        for place in (f"/sys/fs/cgroup/{kinds}{path}", f"/sys/fs/cgroup{path}"):
            if path != "/" and os.path.isdir(place):
                held.append(os.open(place, os.O_RDONLY))
                return


# -- what is found during the dump ----------------------------------------------------------------


@group("failed")
def a_socket_with_descriptors_on_its_own_way():
    here, there = socket.socketpair()
    inner, outer = socket.socketpair()
    socket.send_fds(inner, [b"in"], [0])
    inner.close()
    socket.send_fds(here, [b"out"], [outer.fileno()])
    outer.close()
    held.append(here)

    def look():
        _, files, *_ = socket.recv_fds(there, 9, 1)
        with socket.socket(fileno=files[0]) as got:
            return socket.recv_fds(got, 9, 1)[0] == b"in"

    return look


def child(make):
    """One that has made it, and waits."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            held.append(writing)
            make()
            os.write(writing, b"x")
            os.close(writing)
            while True:
                signal.pause()
        finally:
            os._exit(9)
    os.close(writing)
    assert os.read(reading, 1), make.__name__
    os.close(reading)


def judged(look):
    try:
        return look()
    except OSError as error:
        return repr(error)


def main(path, *groups):
    looks = {}
    os.makedirs(f"{path}.d", exist_ok=True)
    os.chdir(f"{path}.d")
    for name in groups:
        for each, make in GROUPS[name].items():
            if name == "refused":
                child(make)
            else:
                looks[each] = make()
    count = 0
    while True:
        count += 1
        with open(f"{path}.new", "w") as file:
            file.write(f"{count} {os.getpid()} {os.uname().nodename} True")
        os.rename(f"{path}.new", path)
        if os.path.exists(f"{path}.check"):
            os.unlink(f"{path}.check")
            seen = {each: judged(look) for each, look in looks.items()}
            with open(f"{path}.new", "w") as file:
                json.dump({each: repr(got) for each, got in seen.items() if got is not True}, file)
            os.rename(f"{path}.new", f"{path}.seen")
        time.sleep(0.2)


main(*sys.argv[1:])
