"""Run as the first process of new namespaces: makes the terminals that test_wall.py names.

argv: one word a terminal: open, raw, stopped (Ctrl-S), full, hungup, orphan (nobody works at it),
untouched. Says `ready`, then answers `read` with what arrived at each and `times` with their times.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import subprocess
import sys
import termios
import time
import tty

TIOCSPTLCK, TIOCGPTN = 0x40045431, 0x80045430  # <asm-generic/ioctls.h>
SLEEPER = "import time; time.sleep(1000)"


def own_terminals():
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"none", b"/", None, 0x4000 | 0x80000, None) == 0  # MS_REC | MS_SLAVE
    options = b"newinstance,mode=620,ptmxmode=666"
    assert libc.mount(b"devpts", b"/dev/pts", b"devpts", 0, options) == 0
    assert libc.mount(b"proc", b"/proc", b"proc", 0, None) == 0
    assert libc.mount(b"/dev/pts/ptmx", b"/dev/ptmx", None, 0x1000, None) == 0  # MS_BIND


def terminal(kind):
    master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(master, TIOCSPTLCK, b"\0" * 4)
    number = int.from_bytes(fcntl.ioctl(master, TIOCGPTN, b"\0" * 4), sys.byteorder)
    path = f"/dev/pts/{number}"
    if kind == "untouched":  # made, and the program at its other end is not there yet
        return master, path
    slave = os.open(path, os.O_RDWR | os.O_NOCTTY)
    if kind == "raw":
        tty.setraw(slave)

    def own():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    if kind != "orphan":
        subprocess.Popen(
            [sys.executable, "-c", SLEEPER], stdin=slave, stdout=slave, stderr=slave, preexec_fn=own
        )
    if kind == "stopped":
        termios.tcflow(slave, termios.TCOOFF)
    if kind == "full":
        os.set_blocking(slave, False)
        for _ in range(5):  # the kernel makes room again while it passes on what it has
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(slave, b"x")
            time.sleep(0.1)
    os.close(slave)
    if kind == "hungup":
        os.close(master)
        master = None
    return master, path


def arrived(master):
    said = b""
    while master is not None and select.select([master], [], [], 0.2)[0]:
        try:
            chunk = os.read(master, 65536)
        except OSError:
            return said.decode("latin-1") + "EIO"
        said += chunk
    return said.decode("latin-1")


def main():
    own_terminals()
    made = [terminal(kind) for kind in sys.argv[1:]]
    print("ready", flush=True)
    for command in sys.stdin:
        if command.strip() == "read":
            answer = [arrived(master) for master, _ in made]
        else:
            stats = [os.stat(path) for _, path in made]
            answer = [[s.st_atime, s.st_mtime] for s in stats]
        print(json.dumps(answer), flush=True)


main()
