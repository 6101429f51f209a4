"""What the threads of a session may do, as the kernel shows it (S9)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from slurm_reclaim.adapters.proc.tree import PROC, Process, kernel_text, namespace
from slurm_reclaim.model.checkpoint import Credentials, Held, Rights

_NO_LOGIN = 2**32 - 1
_MASKS = ("inheritable", "permitted", "effective", "ambient")


def of_tree(members: Iterable[Process]) -> dict[int, Rights]:
    """Of every living thread of these processes, by its id within the session."""
    found: dict[int, Rights] = {}
    for process in members:
        if process.state not in "ZX":
            found |= of_process(process.pid)
    return found


def of_process(pid: int) -> dict[int, Rights]:
    """Empty where it is gone, and without threads that end meanwhile."""
    base = PROC / str(pid)
    found = {}
    try:
        dumpable = os.stat(base / "environ").st_uid
        login = _login(base)
        names = os.listdir(base / "task")
    except (FileNotFoundError, ProcessLookupError):
        return {}
    for name in names:
        try:
            status = _status(base / "task" / name)
            label = _label(base / "task" / name)
        except (FileNotFoundError, ProcessLookupError):
            continue
        uids = _numbers(status["Uid"])
        # Of what nobody may look into, root owns the files (proc(5)).
        found[int(status["NSpid"].split()[-1])] = Rights(
            uids=uids,
            gids=_numbers(status["Gid"]),
            groups=tuple(sorted(_numbers(status["Groups"]))),
            inheritable=int(status["CapInh"], 16),
            permitted=int(status["CapPrm"], 16),
            effective=int(status["CapEff"], 16),
            bounding=int(status["CapBnd"], 16),
            ambient=int(status["CapAmb"], 16),
            no_new_privs=status.get("NoNewPrivs", "0").strip() == "1",
            seccomp=int(status.get("Seccomp", "0")),
            label=label,
            dumpable=dumpable == uids[1],
            login=login,
        )
    return found


def _status(task: Path) -> dict[str, str]:
    lines = kernel_text(task / "status").split("\n")
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split())


def _label(task: Path) -> str:
    """Without the mode that AppArmor adds, "docker-default (enforce)"."""
    try:
        text = kernel_text(task / "attr" / "current")
    except (FileNotFoundError, ProcessLookupError):
        raise
    except OSError:
        return ""  # no security module has labels here
    label = text.rstrip("\x00\n").partition(" (")[0]
    return "" if label == "unconfined" else label


def _login(base: Path) -> int:
    try:
        number = int(kernel_text(base / "loginuid"))
    except (OSError, ValueError):
        return -1
    return -1 if number == _NO_LOGIN else number


def grouped(rights: Mapping[int, Rights]) -> tuple[Held, ...]:
    """Threads with the same rights together: nearly always all of them."""
    threads: dict[Rights, list[int]] = {}
    for thread, held in rights.items():
        threads.setdefault(held, []).append(thread)
    return tuple(Held(held, tuple(sorted(ids))) for held, ids in threads.items())


def of_threads(held: Iterable[Held]) -> dict[int, Rights]:
    return {thread: one.rights for one in held for thread in one.threads}


def beyond(rights: Rights, owner: Credentials) -> str:
    """In what these are more than the owner's own; "" where they are not. An owner has no
    capability, and nothing that needs one to be set."""
    groups = {owner.gid, *owner.groups}
    if set(rights.uids) != {owner.uid}:
        return f"uid {_shown(rights.uids)} is not the owner's {owner.uid}"
    if not set(rights.gids) <= groups:
        return f"gid {_shown(rights.gids)} is none of the owner's groups"
    if not set(rights.groups) <= groups:
        return f"groups {_shown(rights.groups)} are not the owner's"
    for name in _MASKS:
        if getattr(rights, name):
            return f"{name} capabilities {getattr(rights, name):x}"
    if rights.bounding & ~owner.cap_bounding:
        return f"bounding set {rights.bounding:x} is larger than the owner's"
    if owner.no_new_privs and not rights.no_new_privs:
        return "no_new_privs is gone"
    return ""


def grown(now: Rights, before: Rights) -> str:
    """In what a restored thread may do more than it might before; "" where it may not. To have
    given something up since is its own affair."""
    for name in ("uids", "gids"):
        if not set(getattr(now, name)) <= set(getattr(before, name)):
            return f"{name} {_shown(getattr(now, name))} instead of {_shown(getattr(before, name))}"
    if not set(now.groups) <= set(before.groups):
        return f"groups {_shown(now.groups)} instead of {_shown(before.groups)}"
    for name in (*_MASKS, "bounding"):
        if getattr(now, name) & ~getattr(before, name):
            return f"{name} capabilities {getattr(now, name):x}, not {getattr(before, name):x}"
    if before.no_new_privs and not now.no_new_privs:
        return "no_new_privs is gone"
    if before.seccomp and not now.seccomp:
        return "the seccomp filter is gone"
    if now.label != before.label:
        return f"label {now.label or 'none'} instead of {before.label or 'none'}"
    if now.dumpable and not before.dumpable:
        return "others of its owner's processes may look into it now"
    if now.login != before.login and now.login != -1:
        return f"login uid {now.login} instead of {before.login}"
    return ""


def gained(members: Iterable[Process], held: Iterable[Held], init: int, relay: int) -> str:
    """What a restored thread has that it had not before; "" where there is nothing. Threads that
    were not in the image were made since, by the kernel's own rules."""
    before = of_threads(held)
    places = _cgroups(relay)
    for process in members:
        if process.inner not in before or process.state in "ZX":
            continue
        if namespace(process.pid, "user") not in (0, namespace(init, "user")):
            continue  # made since: within it, it may have anything, outside of it nothing
        if places and (other := _cgroups(process.pid)) and other != places:
            return f"{process} is in another cgroup than the job: {next(iter(other - places))}"
        for thread, now in of_process(process.pid).items():
            if thread in before and (what := grown(now, before[thread])):
                return f"{process}, thread {thread}: {what}"
    return ""


def _cgroups(pid: int) -> frozenset[str]:
    try:
        return frozenset(kernel_text(PROC / str(pid) / "cgroup").split("\n")) - {""}
    except (FileNotFoundError, ProcessLookupError):
        return frozenset()


def _shown(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers)) or "none"
