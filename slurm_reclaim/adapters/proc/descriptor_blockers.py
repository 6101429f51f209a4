"""Open descriptors that CRIU can't dump, or would give back as something else, by what the kernel
says of each: its link, and for some kinds its fdinfo (proc_pid_fdinfo(5))."""

from __future__ import annotations

import errno
import os
import re
import resource
import time
from collections.abc import Collection, Iterator

from slurm_reclaim.adapters.proc import sockets
from slurm_reclaim.adapters.proc.tree import (
    PROC,
    TOO_LONG,
    Process,
    descriptors,
    kernel_text,
    printable,
)
from slurm_reclaim.model.blocker import Blocker

_ANONYMOUS = {
    "[io_uring]": ("io-uring", "start the session under slurm-reclaim with block_io_uring, or "
                   "set kernel.io_uring_disabled=2"),
    "[userfaultfd]": ("userfaultfd", ""),
    "[perf_event]": ("perf-event", "end the profiler"),
    "[fanotify]": ("fanotify", ""),
    "kvm-vm": ("kvm", "virtual machines can't be hibernated"),
    "kvm-vcpu": ("kvm", "virtual machines can't be hibernated"),
    "[secretmem]": ("secretmem", ""),
    "landlock-ruleset": ("landlock", ""),
    "seccomp notify": ("seccomp-notify", ""),
    "bpf-prog": ("bpf", ""),
    "bpf_link": ("bpf", ""),
}  # fmt: skip
_FLAGS = re.compile(rb"^flags:\t(\d+)", re.MULTILINE)
_CLOCK = re.compile(rb"^clockid: (\d+)", re.MULTILINE)
_CLOCKS = (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC)
# PIDFD_THREAD of pidfd_open(2) is O_EXCL
_PACKETS, _OF_A_THREAD = os.O_DIRECT, os.O_EXCL
# CRIU keeps a table of so many pipes (NR_PIPES_WITH_DATA, seen with 4.2.1), and needs numbers for
# descriptors of its own above the highest of a process that it restores.
_MOST_PIPES, _SERVICE = 1024, 1024
# Its code in a process that is dumped opens a memory file and a socket.
_OF_CRIU = 2
_OPEN_FILES = re.compile(r"^Max open files +(\d+)", re.MULTILINE)


def many(pipes: Collection[str]) -> Iterator[Blocker]:
    """Of a whole session; `pipes` as `of_process` has collected them."""
    if len(pipes) > _MOST_PIPES:
        yield Blocker(
            "many-pipes",
            f"its processes have {len(pipes)} pipes",
            f"CRIU can save {_MOST_PIPES} of one session; end some of the processes",
        )


def of_process(process: Process, pipes: set[str]) -> Iterator[Blocker]:
    """`pipes` collects those that it has."""
    base = PROC / str(process.pid)
    numbers = []
    yield from _places(process)
    for name, target in descriptors(base):
        numbers.append(int(name))
        if target.startswith("pipe:["):
            pipes.add(target)
        try:
            yield from _descriptor(process, target, f"{base}/fd/{name}", f"{base}/fdinfo/{name}")
        except (FileNotFoundError, ProcessLookupError):
            continue
    yield from _numbers(process, numbers)


def _places(process: Process) -> Iterator[Blocker]:
    for name in ("cwd", "exe"):
        try:
            os.readlink(f"{PROC}/{process.pid}/{name}")
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                yield _too_long(process)


def _too_long(process: Process) -> Blocker:
    what = f"{process} has a file or a directory open whose path is longer than 4096 bytes"
    return Blocker("path-too-long", what, "close it, or move to another directory")


def _numbers(process: Process, numbers: list[int]) -> Iterator[Blocker]:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - _SERVICE
    if numbers and max(numbers) >= most:
        yield Blocker(
            "high-descriptor",
            f"{process} has a descriptor of the number {max(numbers)}",
            f"CRIU needs those from {most} on for itself; close it",
        )
    try:
        text = kernel_text(PROC / str(process.pid) / "limits")
    except (FileNotFoundError, ProcessLookupError):
        return
    match = _OPEN_FILES.search(text)
    limit = int(match[1]) if match else most
    taken = sum(number < limit for number in numbers)
    if limit - taken < _OF_CRIU:
        yield Blocker(
            "no-descriptor-left",
            f"{process} has {taken} descriptors open, of {limit} (ulimit -n)",
            "close files, or raise the limit: prlimit --nofile",
        )


def _descriptor(process: Process, target: str, path: str, info: str) -> Iterator[Blocker]:
    if target == TOO_LONG:
        yield _too_long(process)
    elif target.startswith("anon_inode:"):
        yield from anonymous(process, target.removeprefix("anon_inode:"))
    if target == "anon_inode:[timerfd]" and (clock := _clock(info)) not in _CLOCKS:
        yield Blocker(
            "timerfd-clock",
            f"{process} has a timerfd of another clock ({clock}) than CRIU knows",
            "CLOCK_MONOTONIC and CLOCK_REALTIME come back; end it",
        )
    elif target == "anon_inode:[eventfd]" and b"eventfd-semaphore: 1" in _info(info):
        yield Blocker(
            "eventfd-semaphore",
            f"{process} has an eventfd with EFD_SEMAPHORE",
            "it would come back without that, and count otherwise; end it",
        )
    elif "pidfd" in target and not target.startswith("/") and _flags(info) & _OF_A_THREAD:
        what = f"{process} has a pidfd of a thread (PIDFD_THREAD)"
        yield Blocker("thread-pidfd", what, "close it")
    elif target.startswith("pipe:[") and _flags(info) & _PACKETS:
        what = f"{process} has a pipe that keeps packets (O_DIRECT)"
        yield Blocker("packet-pipe", what, "close it")
    elif target.startswith("socket:["):
        kind = sockets.protocol(path)
        if kind not in sockets.KNOWN_PROTOCOLS:
            yield Blocker(
                "socket-kind",
                f"{process} has a {kind or 'unknown'} socket",
                "RDMA, vsock, SCTP, MPTCP and Bluetooth sockets can't; end it",
            )


def anonymous(process: Process, kind: str) -> Iterator[Blocker]:
    for pattern, (name, hint) in _ANONYMOUS.items():
        if pattern in kind:
            yield Blocker(name, f"{process} uses {printable(kind.strip('[]'))}", hint)


def _info(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(4096)


def _clock(path: str) -> int:
    match = _CLOCK.search(_info(path))
    return int(match[1]) if match else time.CLOCK_MONOTONIC


def _flags(path: str) -> int:
    match = _FLAGS.search(_info(path))
    return int(match[1], 8) if match else 0
