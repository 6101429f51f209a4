"""Becomes a node's init: `python3 -m reclaim_lab.node_boot SPEC`, prints the init's pid.

Enters the node's cgroups and network, takes namespaces of its own for the rest, forks, and lets
the child put the root together, move into it and turn into a sleeper that reaps orphans.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import traceback
import uuid
from dataclasses import dataclass
from pathlib import Path

from reclaim_lab import gpus, kernel

CHARACTER_DEVICES = {
    "null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9),
    "tty": (5, 0),
}  # fmt: skip


@dataclass(frozen=True)
class BootSpec:
    node: str
    lowers: list[str]
    disk: str
    """Directory that holds the node's own layer."""
    shared: str
    netns: str
    first_groups: list[str]
    """cgroup.procs files of what becomes the root of the node's cgroup namespace."""
    groups: list[str]
    """cgroup.procs files of where the node's processes sit."""
    hierarchies: list[tuple[str, str, str]]
    gpus: int
    gpu_files: dict[str, tuple[int, int]]
    """Device numbers by name in /dev."""


def become(spec: BootSpec) -> int:
    _join(spec.first_groups)
    kernel.setns(spec.netns, kernel.CLONE_NEWNET)
    kernel.unshare(
        kernel.CLONE_NEWNS
        | kernel.CLONE_NEWUTS
        | kernel.CLONE_NEWIPC
        | kernel.CLONE_NEWPID
        | kernel.CLONE_NEWCGROUP
    )
    # Only now: the namespace's root is where we were when it was made.
    _join(spec.groups)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            _init(spec, writer)
        except OSError as error:
            os.write(writer, str(error).encode())
        except BaseException:
            os.write(writer, traceback.format_exc(limit=-1).encode())
        os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        trouble = said.read().decode(errors="replace")
    if trouble:
        os.waitpid(pid, 0)
        sys.stderr.write(trouble)
        return 1
    print(pid)
    return 0


def _join(files: list[str]) -> None:
    for path in files:
        Path(path).write_text("0")


def _init(spec: BootSpec, writer: int) -> None:
    os.setsid()
    os.umask(0o022)
    socket.sethostname(spec.node)
    _mount_all(spec)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    # With SIGCHLD ignored the kernel reaps what dies here, orphans too; it stays ignored over
    # the exec. `writer` closes on exec: that is the word to our parent that the node is up.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.execve("/usr/bin/sleep", ["init", "infinity"], {})


def _mount_all(spec: BootSpec) -> None:
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    root = f"{spec.disk}/root"
    lowers = ":".join(spec.lowers)
    kernel.mount(
        "overlay",
        root,
        "overlay",
        options=f"lowerdir={lowers},upperdir={spec.disk}/upper,workdir={spec.disk}/work",
    )
    for name in ("proc", "sys", "dev", "run", "tmp", "shared", "old"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    no_programs = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("proc", f"{root}/proc", "proc", no_programs)
    kernel.mount("sysfs", f"{root}/sys", "sysfs", no_programs)
    kernel.mount("tmpfs", f"{root}/run", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
    kernel.mount("tmpfs", f"{root}/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
    _mount_cgroups(spec, f"{root}/sys/fs/cgroup")
    _make_dev(spec, f"{root}/dev")
    kernel.mount(spec.shared, f"{root}/shared", flags=kernel.MS_BIND)
    os.chdir(root)
    kernel.pivot_root(".", "old")
    os.chdir("/")
    kernel.unmount("/old")
    os.rmdir("/old")
    _check_root()
    os.makedirs("/run/lock", exist_ok=True)
    _name_boot()
    if spec.gpus:
        os.makedirs(os.path.dirname(gpus.SCRIPT))
        Path(gpus.SCRIPT).write_text(gpus.idle(spec.node, spec.gpus))
        shutil.rmtree(gpus.MEMORY, ignore_errors=True)  # a card forgets when its node goes down
        os.makedirs(gpus.MEMORY)
        os.chmod(gpus.MEMORY, 0o1777)


def _name_boot() -> None:
    """All nodes have one kernel; each is to be told from how it was before its power failed."""
    Path("/run/boot_id").write_text(f"{uuid.uuid4()}\n")
    kernel.mount("/run/boot_id", "/proc/sys/kernel/random/boot_id", flags=kernel.MS_BIND)


def _check_root() -> None:
    """Whoever enters this mount namespace must land here and nowhere else.

    Called in a chroot, pivot_root(2) swaps the chroot's mount only: the namespace keeps the
    machine's real root, and everything sent to the node would be written there.
    """
    ours = os.stat("/")
    kernel.setns("/proc/self/ns/mnt", kernel.CLONE_NEWNS)
    entered = os.stat("/")
    if (ours.st_dev, ours.st_ino) != (entered.st_dev, entered.st_ino):
        raise OSError("this is a chroot: a lab needs the root of its mount namespace to itself")


def _mount_cgroups(spec: BootSpec, top: str) -> None:
    """The same hierarchies at the same places as on the machine, each from the node's group on."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    machine_top = "/sys/fs/cgroup"
    if all(place != machine_top for place, _, _ in spec.hierarchies):
        kernel.mount("tmpfs", top, "tmpfs", flags, "mode=755")
        for entry in os.scandir(machine_top):
            if entry.is_symlink():  # cpu -> cpu,cpuacct
                os.symlink(os.readlink(entry.path), f"{top}/{entry.name}")
    for place, fstype, options in spec.hierarchies:
        target = top + place[len(machine_top) :]
        os.makedirs(target, exist_ok=True)
        kernel.mount(fstype, target, fstype, flags, options)


def _make_dev(spec: BootSpec, dev: str) -> None:
    kernel.mount("tmpfs", dev, "tmpfs", kernel.MS_NOSUID, "mode=755")
    mask = os.umask(0)
    for name, (major, minor) in CHARACTER_DEVICES.items():
        os.mknod(f"{dev}/{name}", 0o020666, os.makedev(major, minor))
    # What Slurm's GRES needs to count and constrain GPUs, and a CUDA process to open.
    for name, (major, minor) in spec.gpu_files.items():
        os.mknod(f"{dev}/{name}", 0o020666, os.makedev(major, minor))
    os.umask(mask)
    for name, target in {
        "ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1",
        "stderr": "fd/2",
    }.items():  # fmt: skip
        os.symlink(target, f"{dev}/{name}")
    for name in ("pts", "shm", "mqueue"):
        os.mkdir(f"{dev}/{name}")
    no_programs = kernel.MS_NOSUID | kernel.MS_NOEXEC
    kernel.mount("devpts", f"{dev}/pts", "devpts", no_programs, "newinstance,ptmxmode=666,mode=620")
    kernel.mount("tmpfs", f"{dev}/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
    try:
        kernel.mount("mqueue", f"{dev}/mqueue", "mqueue", no_programs)
    except OSError:
        os.rmdir(f"{dev}/mqueue")  # a kernel without POSIX message queues


if __name__ == "__main__":
    sys.exit(become(BootSpec(**json.loads(sys.argv[1]))))
