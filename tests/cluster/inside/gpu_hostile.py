"""A CUDA session that won't hold still while it is saved. Run as cuda-session, with how it behaves
before the options:

stops     its name is no text, and a child of its stops it as long as it is locked
begins    begins with CUDA only when the file named by $BEGIN is there
takes     takes $TAKES MiB of memory as soon as the job's limit is raised; 300 MiB on its card
"""

import ctypes
import os
import runpy
import signal
import sys
import threading
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
        elif size and 1.0 < time.monotonic() - since < 6.0:
            os.kill(parent, signal.SIGSTOP)


def limit() -> int:
    with open("/proc/self/cgroup") as file:
        lines = dict(line.rstrip("\n").split(":", 2)[1:] for line in file)
    if "memory" in lines:
        path = f"/sys/fs/cgroup/memory{lines['memory']}/memory.limit_in_bytes"
        while not path.rpartition("/")[0].endswith("step_batch"):
            path = os.path.join(os.path.dirname(os.path.dirname(path)), os.path.basename(path))
    else:
        path = f"/sys/fs/cgroup{lines['']}/memory.max"
    with open(path) as file:
        return int(file.read())


def take(mib: int) -> None:
    given = limit()
    while limit() <= given:
        time.sleep(0.02)
    kept.append(bytearray(mib << 20))
    with open(os.environ["OUT"] + "-taken", "w"):
        pass


kept: list[bytearray] = []
if behaviour == "stops":
    ctypes.CDLL(None).prctl(15, b"\x1b[31m\n\xff")  # PR_SET_NAME
    if os.fork() == 0:
        stop(os.getppid())
elif behaviour == "begins":
    with open(os.environ["OUT"], "a") as file:
        file.write(f"1 {os.getpid()} {os.uname().nodename} - ok\n")
    while not os.path.exists(os.environ["BEGIN"]):
        time.sleep(0.01)
elif behaviour == "takes":
    threading.Thread(target=take, args=(int(os.environ["TAKES"]),), daemon=True).start()
if behaviour == "takes":  # in pieces: more than its host memory on the card
    CLIENT, sys.argv = "/shared/inside/gpu_pieces.py", ["", os.environ["OUT"], "15", "20"]
runpy.run_path(CLIENT, run_name="__main__")
