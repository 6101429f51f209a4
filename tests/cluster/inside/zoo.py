"""One of everything that must come back, made and checked inside a notebook kernel.

`make()` once, `look()` after every cycle: a dict of what is there, to be compared with `EXPECTED`.
"""

import ctypes
import fcntl
import json
import mmap
import multiprocessing
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from multiprocessing import shared_memory

ZOO = {}
CHILD = "import time\nn=0\nwhile True:\n n+=1; time.sleep(0.05)\n"


def _count():
    while True:
        ZOO["ticks"] += 1
        time.sleep(0.02)


def _renew(*_):
    ZOO["alarms"] += 1


def make(home, outside_host, outside_port):
    os.chdir(home)
    context = multiprocessing.get_context("fork")
    ZOO.update(ticks=0, alarms=0, began=time.monotonic(), looks=0)
    threading.Thread(target=_count, daemon=True).start()
    ZOO["child"] = subprocess.Popen([sys.executable, "-c", CHILD])
    ZOO["daemon"] = int(
        subprocess.check_output(
            ["sh", "-c", "setsid sleep 99999 >/dev/null 2>&1 & echo $!"], text=True
        )
    )
    ZOO["lock"], ZOO["semaphore"] = context.Lock(), context.Semaphore(3)
    ZOO["semaphore"].acquire()
    ZOO["shm"] = shared_memory.SharedMemory(create=True, size=1 << 20)
    ZOO["shm"].buf[:5] = b"hello"
    ZOO["deleted"] = open("deleted.bin", "w+b")  # noqa: SIM115 - held open
    ZOO["deleted"].write(b"ghost" * 1000)
    ZOO["deleted"].flush()
    os.unlink("deleted.bin")
    ZOO["tmp"] = open("/tmp/zoo.tmp", "w+")  # noqa: SIM115 - held open
    ZOO["tmp"].write("private")
    ZOO["tmp"].flush()
    ZOO["db"] = sqlite3.connect("zoo.db", check_same_thread=False)
    ZOO["db"].execute("create table if not exists t(a)")
    ZOO["db"].execute("delete from t")
    ZOO["db"].commit()
    ZOO["db"].execute("insert into t values(1)")
    ZOO["map"] = mmap.mmap(-1, 1 << 20)
    ZOO["map"][:3] = b"abc"
    ZOO["memfd"] = os.memfd_create("zoo")
    os.write(ZOO["memfd"], b"memfd!")
    ZOO["flock"] = open("zoo.lock", "w")  # noqa: SIM115 - held open
    fcntl.flock(ZOO["flock"], fcntl.LOCK_EX)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    ZOO["here"] = socket.create_connection(listener.getsockname())
    ZOO["there"], _ = listener.accept()
    ZOO["pair"] = socket.socketpair()
    ZOO["pair"][0].send(b"in flight")
    ZOO["outside"] = socket.create_connection((outside_host, outside_port))
    signal.signal(signal.SIGALRM, _renew)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)


def _stopped(pid):
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]


def _outside():
    try:
        ZOO["outside"].settimeout(1)
        ZOO["outside"].send(b"q")
        return "open" if ZOO["outside"].recv(1) else "closed"
    except OSError as error:
        return f"closed ({error.errno})"


def look():
    ticks, alarms = ZOO["ticks"], ZOO["alarms"]
    time.sleep(0.4)
    ZOO["looks"] += 1
    os.lseek(ZOO["memfd"], 0, 0)
    ZOO["here"].send(b"ping")
    library = ctypes.CDLL(None, use_errno=True)
    return {
        "looks": ZOO["looks"],
        "thread": ZOO["ticks"] > ticks,
        "timer": ZOO["alarms"] > alarms,
        "child": ZOO["child"].poll(),
        "daemon": _stopped(ZOO["daemon"]),
        "semaphore": ZOO["semaphore"].get_value(),
        "lock": ZOO["lock"].acquire(timeout=1) and (ZOO["lock"].release() or True),
        "shm": bytes(ZOO["shm"].buf[:5]).decode(),
        "shm_file": os.path.exists(f"/dev/shm/{ZOO['shm'].name}"),
        "deleted": os.pread(ZOO["deleted"].fileno(), 9999, 0) == b"ghost" * 1000,
        "tmp": open("/tmp/zoo.tmp").read(),
        "db": ZOO["db"].execute("select count(*) from t").fetchone()[0],
        "map": ZOO["map"][:3].decode(),
        "memfd": os.read(ZOO["memfd"], 6).decode(),
        "loopback": ZOO["there"].recv(4).decode(),
        "pair": ZOO["pair"][1].recv(9, socket.MSG_PEEK).decode(),
        "outside": _outside(),
        "monotonic": round(time.monotonic() - ZOO["began"], 1),
        "pid": os.getpid(),
        "node": os.uname().nodename,
        "io_uring": (library.syscall(425, 1, None), ctypes.get_errno())[1],
        "capabilities": next(
            line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")
        ),
    }


def show():
    print(json.dumps(look()))
