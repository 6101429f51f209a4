"""Makes what comes next newer than the node's own mount namespace, on every CPU.

Slurm's job_container/tmpfs binds the mount namespace of a job to a file, which Linux allows for
newer namespaces only, by their numbers. On 6.18 each CPU has been seen to hand out numbers from a
batch of its own, so that a namespace made later on another CPU passes for an older one (EINVAL).
Batches are used up here until that is over.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

NEWNS, NEWUTS, BIND, PRIVATE, DETACH = 0x20000, 0x4000000, 0x1000, 0x40000, 2
BATCH, MOST = 256, 1 << 15
PLACE = "/run/newer-namespaces"
libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, kind: int) -> bool:
    return libc.mount(source.encode(), PLACE.encode(), None, kind, None) == 0


def on(cpu: int, times: int, kind: int) -> None:
    """For a child of ours."""
    os.sched_setaffinity(0, {cpu})
    for _ in range(times):
        if libc.unshare(kind):
            os._exit(1)


def is_newer(cpu: int) -> bool:
    told, telling = os.pipe()
    child = os.fork()
    if not child:
        on(cpu, 1, NEWNS)
        os.write(telling, b"made")
        while True:
            signal.pause()
    try:
        os.read(told, 4)
        newer = mount(f"/proc/{child}/ns/mnt", BIND)
        if newer:
            libc.umount2(PLACE.encode(), DETACH)
        return newer
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(told)
        os.close(telling)


def use_up(cpu: int) -> None:
    child = os.fork()
    if not child:
        on(cpu, BATCH, NEWUTS)
        os._exit(0)
    os.waitpid(child, 0)


def main() -> None:
    open(PLACE, "w").close()
    if not (mount(PLACE, BIND) and libc.mount(None, PLACE.encode(), None, PRIVATE, None) == 0):
        sys.exit("the place can't be mounted")
    try:
        for cpu in os.sched_getaffinity(0):
            used = 0
            while not is_newer(cpu):
                if used > MOST:
                    sys.exit(f"namespaces of CPU {cpu} pass for older ones")
                use_up(cpu)
                used += BATCH
    finally:
        libc.umount2(PLACE.encode(), DETACH)
        os.unlink(PLACE)


main()
