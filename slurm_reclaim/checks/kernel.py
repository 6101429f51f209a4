"""What the kernel of a compute node must have."""

from __future__ import annotations

import re

from slurm_reclaim.checks.host import Host
from slurm_reclaim.checks.result import Check, Family

_FAMILY = Family("kernel")
_OLDEST = (5, 13)
_CAP_CHECKPOINT_RESTORE = 40


def judge(host: Host, block_io_uring: str) -> list[Check]:
    return [
        _version(host.kernel),
        _file(
            host,
            "time namespaces",
            "/proc/self/ns/time",
            "CONFIG_TIME_NS is missing: monotonic clocks of restored sessions could jump back",
        ),
        _file(
            host,
            "ns_last_pid",
            "/proc/sys/kernel/ns_last_pid",
            "CONFIG_CHECKPOINT_RESTORE is missing: this kernel can't restore processes",
        ),
        _file(
            host,
            "children",
            "/proc/thread-self/children",
            "CONFIG_PROC_CHILDREN is missing: CRIU finds the processes of a session by it",
        ),
        _capability(host),
        _io_uring(host, block_io_uring),
    ]


def _version(release: str) -> Check:
    numbers = re.match(r"(\d+)\.(\d+)", release)
    good = numbers is not None and (int(numbers[1]), int(numbers[2])) >= _OLDEST
    return _FAMILY.judge(
        "kernel version",
        good,
        release,
        "5.13 or later is needed: clone3 with set_tid (5.5) gives processes their PIDs back, "
        "CAP_CHECKPOINT_RESTORE (5.9) does it without root, PTRACE_GET_RSEQ_CONFIGURATION (5.13) "
        "is what glibc 2.35 and later need",
    )


def _file(host: Host, name: str, path: str, hint: str) -> Check:
    seen = host.exists(path)
    return _FAMILY.judge(name, seen, f"{path} is {'there' if seen else 'missing'}", hint)


def _capability(host: Host) -> Check:
    """The bounding set: in a container the capability may exist and be withheld."""
    name = "CAP_CHECKPOINT_RESTORE"
    found = re.search(r"^CapBnd:\s*([0-9a-f]+)", host.read("/proc/self/status"), re.MULTILINE)
    has = found is not None and bool(int(found[1], 16) >> _CAP_CHECKPOINT_RESTORE & 1)
    return _FAMILY.judge(
        name,
        has,
        "can be given" if has else "can't be given",
        "needs kernel 5.9, and where the node is a container, a runtime that leaves it in the "
        "bounding set",
    )


def _io_uring(host: Host, block: str) -> Check:
    name, path = "io_uring", "/proc/sys/kernel/io_uring_disabled"
    value = host.read(path).strip() if host.exists(path) else "missing"
    if value == "2":
        return _FAMILY.ok(name, "switched off (kernel.io_uring_disabled=2)")
    hint = (
        "set kernel.io_uring_disabled=2 (/etc/sysctl.d): it can't be dumped, Node 22 and later "
        "always use it, and without our filter CRIU needs no CAP_SYS_ADMIN"
    )
    if value == "missing":
        hint = "a kernel 6.6 or later has the switch kernel.io_uring_disabled"
    if block == "never":
        return _FAMILY.warning(
            name, f'on ({value}), and block_io_uring = "never": users of it stay blocked', hint
        )
    return _FAMILY.warning(name, f"on ({value}); sessions start under a filter instead", hint)
