"""What an image would let its processes do, compared with what the kernel said of them (S9).

CRIU writes into the image what the process itself told it (a parasite runs inside), and gives back
what the image says. So the image's word counts only where it is the kernel's, thread by thread:
CVE-2026-18107 was a process that told CRIU untrue things.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from slurm_reclaim.adapters.criu.images import messages
from slurm_reclaim.adapters.proc.rights import beyond
from slurm_reclaim.errors import CredentialsForged
from slurm_reclaim.model.checkpoint import Credentials, Rights

_NAMESPACES = (
    "pid_ns_id", "net_ns_id", "ipc_ns_id", "uts_ns_id", "mnt_ns_id", "user_ns_id", "cgroup_ns_id",
)  # fmt: skip
# Images of namespaces that CRIU would make: ours are made before it runs, so there is none.
_OF_NAMESPACES = ("userns-*", "pidns-*", "netns-*", "ipcns-*", "utsns-*", "mountpoints-*", "mnt-*")


def check(images: Path, owner: Credentials, known: Mapping[int, Rights]) -> None:
    """`known`: what the kernel showed of each thread while all of them were frozen. Raises
    CredentialsForged naming the first difference, IntegrityError for what is no image."""
    for thread, rights in known.items():
        if what := beyond(rights, owner):
            raise CredentialsForged(f"thread {thread} had more than its owner's rights: {what}")
    for pattern in _OF_NAMESPACES:
        if found := next(iter(sorted(images.glob(f"{pattern}.img"))), None):
            raise CredentialsForged(f"{found.name}: the image brings a namespace of its own")
    threads = _threads(images)
    _no_others(images, threads)
    seen, spaces = set(), set()
    for thread in sorted(threads):
        core = _core(images, thread)
        if core.HasField("ids"):
            spaces.add(tuple(getattr(core.ids, name) for name in _NAMESPACES))
        if not _has_credentials(core):
            continue  # a zombie
        seen.add(thread)
        if thread in known:
            _check_thread(images, thread, core, owner, known[thread])
    if odd := sorted(seen - known.keys()):
        raise CredentialsForged(f"thread {odd[0]} is in the image and was not in the session")
    if odd := sorted(known.keys() - seen):
        raise CredentialsForged(f"the image has no credentials of thread {odd[0]}")
    if not seen:
        raise CredentialsForged("the image has no credentials at all")
    if len(spaces) > 1:
        raise CredentialsForged("the image spreads its processes over several namespaces")


def _threads(images: Path) -> set[int]:
    """Which threads are restored: the image's own table says."""
    threads: set[int] = set()
    for item in messages(images / "pstree.img", "PsTree"):
        threads |= {item.pid, *item.threads[1:]}
        # The first one is the process itself. Of a zombie CRIU 4.2.1 writes any number there, and
        # the restore passes over it.
        if item.threads and item.threads[0] != item.pid and not _dead(images, item.pid):
            threads.add(item.threads[0])
    return threads


def _dead(images: Path, process: int) -> bool:
    """Of a living process that is made to look like one, the credentials are missed later on."""
    return not _has_credentials(_core(images, process))


def _has_credentials(core: Any) -> bool:
    return bool(core.HasField("thread_core") and core.thread_core.HasField("creds"))


def _core(images: Path, thread: int) -> Any:
    path = images / f"core-{thread}.img"
    if not path.is_file() or path.is_symlink():
        raise CredentialsForged(f"{path.name} is missing")
    found = list(messages(path, "Core"))
    if len(found) != 1:
        raise CredentialsForged(f"{path.name} has {len(found)} entries")
    return found[0]


def _no_others(images: Path, threads: set[int]) -> None:
    known = set(map(str, threads))
    for path in sorted(images.glob("core-*.img")):
        name = path.name.removeprefix("core-").removesuffix(".img")
        if name not in known:
            raise CredentialsForged(f"{path.name} belongs to no thread of the image")


def _check_thread(images: Path, thread: int, core: Any, owner: Credentials, known: Rights) -> None:
    name = f"core-{thread}.img"
    creds = core.thread_core.creds
    login = core.tc.loginuid if core.HasField("tc") and core.tc.HasField("loginuid") else -1
    told = Rights(
        uids=(creds.uid, creds.euid, creds.suid, creds.fsuid),
        gids=(creds.gid, creds.egid, creds.sgid, creds.fsgid),
        groups=tuple(sorted(creds.groups)),
        inheritable=_mask(creds.cap_inh),
        permitted=_mask(creds.cap_prm),
        effective=_mask(creds.cap_eff),
        bounding=_mask(creds.cap_bnd),
        ambient=_mask(creds.cap_amb),
        no_new_privs=bool(creds.no_new_privs),
        seccomp=core.thread_core.seccomp_mode,
        label=creds.lsm_profile.decode("utf-8", "backslashreplace"),
        dumpable=_dumpable(images, thread),
        login=login,
    )
    if what := beyond(told, owner):
        raise CredentialsForged(f"{name}: {what}")
    if creds.secbits:
        raise CredentialsForged(f"{name}: securebits are set, which needs a capability")
    if core.HasField("tc") and core.tc.old_seccomp_mode not in (0, told.seccomp):
        raise CredentialsForged(f"{name}: it has two seccomp modes")
    if what := _differs(told, known, _untold(images, thread, core)):
        raise CredentialsForged(f"{name}: {what}, by the kernel's word")


def _untold(images: Path, thread: int, core: Any) -> set[str]:
    """What CRIU leaves out of an image. The memory of further threads of a process is that of the
    first one, and so is their filter where it is the same."""
    untold = set()
    if not core.thread_core.creds.lsm_profile:
        untold.add("label")
    if not (core.HasField("tc") and core.tc.HasField("loginuid")):
        untold.add("login")
    if not (images / f"mm-{thread}.img").is_file():
        untold.add("dumpable")
        if not core.thread_core.HasField("seccomp_mode"):
            untold.add("seccomp")
    return untold


def _differs(told: Rights, known: Rights, untold: set[str]) -> str:
    for field in Rights.__dataclass_fields__.keys() - untold:
        here, there = getattr(told, field), getattr(known, field)
        if here == there:
            continue
        return f"{field} is {_shown(here)} and was {_shown(there)}"
    return ""


def _dumpable(images: Path, thread: int) -> bool:
    path = images / f"mm-{thread}.img"
    if not path.is_file():
        return False  # a thread's memory is its leader's
    return any(memory.dumpable == 1 for memory in messages(path, "Memory"))


def _mask(words: Iterable[int]) -> int:
    return sum(word << (32 * i) for i, word in enumerate(words))


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:#x}" if isinstance(value, int) else str(value or "none")
