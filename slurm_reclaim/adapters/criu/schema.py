"""The few CRIU image messages we read or change.

Only the fields we touch are declared; the others are written back unchanged, so that an image of
another CRIU version survives an edit. Field numbers are those of CRIU's images/*.proto (fdinfo,
regfile, remap-file-path, mm, vma, sk-inet, core, creds, pstree, cpuinfo, timerfd, sk-unix,
sk-packet, tcp-stream). A name need be no UTF-8, so that it is bytes here; on disk that is the same.
"""

from __future__ import annotations

from typing import Any

from slurm_reclaim.adapters.criu.protobuf import declare

# message: {field: (number, kind, repeated)}; those that are part of others before these
MESSAGES: dict[str, dict[str, tuple[int, str, bool]]] = {
    "RegFile": {
        "id": (1, "uint32", False),
        "flags": (2, "uint32", False),
        "pos": (3, "uint64", False),
        "name": (6, "bytes", False),
        "size": (8, "uint64", False),
        "mode": (10, "uint32", False),
    },
    "RemapFilePath": {
        "orig_id": (1, "uint32", False),
    },
    "Vma": {
        "shmid": (4, "uint64", False),
        "prot": (5, "uint32", False),
        "status": (7, "uint32", False),
    },
    "CpuX86": {
        "xsave_size_max": (10, "uint32", False),
    },
    "CpuInfo": {
        "x86_entry": (1, "CpuX86", True),
    },
    "InetSocket": {
        "id": (1, "uint32", False),
        "ino": (2, "uint32", False),
        "family": (3, "uint32", False),
        "type": (4, "uint32", False),
        "proto": (5, "uint32", False),
        "state": (6, "uint32", False),
        "src_port": (7, "uint32", False),
        "dst_port": (8, "uint32", False),
        "src_addr": (11, "uint32", True),
        "dst_addr": (12, "uint32", True),
        "shutdown": (19, "uint32", False),
    },
    "FdInfo": {
        "id": (1, "uint32", False),
    },
    "TimerFd": {
        "ticks": (5, "uint64", False),
        "vsec": (7, "uint64", False),
        "vnsec": (8, "uint64", False),
        "isec": (9, "uint64", False),
        "insec": (10, "uint64", False),
    },
    "FilePerms": {
        "mode": (1, "uint32", False),
        "uid": (2, "uint32", False),
        "gid": (3, "uint32", False),
    },
    "UnixSocket": {
        "id": (1, "uint32", False),
        "file_perms": (13, "FilePerms", False),
    },
    "File": {
        "type": (1, "uint32", False),
        "id": (2, "uint32", False),
        "reg": (3, "RegFile", False),
        "isk": (4, "InetSocket", False),
        "tfd": (12, "TimerFd", False),
        "usk": (16, "UnixSocket", False),
    },
    "TcpStream": {
        "inq_seq": (2, "uint32", False),
        "outq_seq": (4, "uint32", False),
        "unsq_len": (12, "uint32", False),
        "rcv_wnd": (16, "uint32", False),
        "rcv_wup": (17, "uint32", False),
    },
    "Scm": {
        "rights": (2, "uint32", True),
    },
    "Packet": {
        "id_for": (1, "uint32", False),
        "length": (2, "uint32", False),
        "scm": (4, "Scm", True),
    },
    "Creds": {
        "uid": (1, "uint32", False),
        "gid": (2, "uint32", False),
        "euid": (3, "uint32", False),
        "egid": (4, "uint32", False),
        "suid": (5, "uint32", False),
        "sgid": (6, "uint32", False),
        "fsuid": (7, "uint32", False),
        "fsgid": (8, "uint32", False),
        "cap_inh": (9, "uint32", True),
        "cap_prm": (10, "uint32", True),
        "cap_eff": (11, "uint32", True),
        "cap_bnd": (12, "uint32", True),
        "secbits": (13, "uint32", False),
        "groups": (14, "uint32", True),
        "lsm_profile": (15, "bytes", False),
        "no_new_privs": (18, "uint32", False),
        "cap_amb": (19, "uint32", True),
    },
    "TaskCore": {
        "task_state": (1, "uint32", False),
        "loginuid": (13, "uint32", False),
        "old_seccomp_mode": (11, "uint32", False),
        "old_seccomp_filter": (12, "uint32", False),
    },
    "ThreadCore": {
        "creds": (10, "Creds", False),
        "seccomp_mode": (11, "uint32", False),
        "seccomp_filter": (12, "uint32", False),
    },
    "X86Registers": {
        "r10": (8, "uint64", False),
        "ax": (11, "uint64", False),
        "dx": (13, "uint64", False),
        "si": (14, "uint64", False),
        "di": (15, "uint64", False),
        "orig_ax": (16, "uint64", False),
        "ip": (17, "uint64", False),
        "cs": (18, "uint64", False),
    },
    "X86Thread": {
        "gpregs": (2, "X86Registers", False),
    },
    "KernelIds": {
        "pid_ns_id": (5, "uint32", False),
        "net_ns_id": (6, "uint32", False),
        "ipc_ns_id": (7, "uint32", False),
        "uts_ns_id": (8, "uint32", False),
        "mnt_ns_id": (9, "uint32", False),
        "user_ns_id": (10, "uint32", False),
        "cgroup_ns_id": (11, "uint32", False),
    },
    "Memory": {
        "vmas": (14, "bytes", True),  # each a Vma, of thousands
        "dumpable": (15, "int32", False),
    },
    "Core": {
        "mtype": (1, "uint32", False),
        "x86": (2, "X86Thread", False),
        "tc": (3, "TaskCore", False),
        "ids": (4, "KernelIds", False),
        "thread_core": (5, "ThreadCore", False),
    },
    "PsTree": {
        "pid": (1, "uint32", False),
        "ppid": (2, "uint32", False),
        "pgid": (3, "uint32", False),
        "sid": (4, "uint32", False),
        "threads": (5, "uint32", True),
    },
}


_CLASSES = declare(MESSAGES)


def message(name: str) -> Any:
    """The class of that name: File, Core, PsTree."""
    return _CLASSES[name]
