"""A CUDA session that won't hold still while it is saved. Run as cuda-session, with how it behaves
before the options:

stops     its name is no text, and a child of its stops it as long as it is locked
begins    begins with CUDA only when the file named by $BEGIN is there
"""

import ctypes
import os
import runpy
import signal
import sys
import time

CLIENT = "/usr/local/bin/cuda-session"
behaviour = sys.argv.pop(1)


def rounds() -> int:
    try:
        return os.stat(os.environ["OUT"]).st_size
    except FileNotFoundError:
        return 0


def stop(parent: int) -> None:
    """What writes nothing for a while is locked."""
    size, since = rounds(), time.monotonic()
    while True:
        time.sleep(0.05)
        if rounds() != size:
            size, since = rounds(), time.monotonic()
        elif size and 0.7 < time.monotonic() - since < 4.0:
            os.kill(parent, signal.SIGSTOP)


if behaviour == "stops":
    ctypes.CDLL(None).prctl(15, b"\x1b[31m\n\xff")  # PR_SET_NAME
    if os.fork() == 0:
        stop(os.getppid())
elif behaviour == "begins":
    with open(os.environ["OUT"], "a") as file:
        file.write(f"1 {os.getpid()} {os.uname().nodename} - ok\n")
    while not os.path.exists(os.environ["BEGIN"]):
        time.sleep(0.01)
sys.argv[0] = CLIENT
runpy.run_path(CLIENT, run_name="__main__")
