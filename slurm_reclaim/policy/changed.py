"""Files that changed while a session slept: which are harmless, and for the others what to say.

CRIU compares size, mode and, of programs and libraries, the build-id, and gives up at the first
difference, when the job has its GPUs already. Here all are found before anything starts. Pure.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from slurm_reclaim.model.checkpoint import File


@dataclass(frozen=True, slots=True)
class Seen:
    """What is at a file's path now, as its owner sees it; `error` an errno, `may` whether it may
    be used as it was, `locked` whether somebody else has a lock in the way of the session's own.
    The other fields are those of model File."""

    error: int = 0
    size: int = 0
    mode: int = 0
    mtime: int = 0
    may: bool = True
    build_id: str = ""
    digest: str = ""
    locked: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """`refused` and `noted` are sentences, one a file, with both values; `remedied` are those of
    the refused that their owner can accept; `differ` are files that are opened as they are now."""

    refused: tuple[str, ...] = ()
    remedied: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    differ: tuple[str, ...] = ()


def judge(
    files: Sequence[File], seen: Sequence[Seen], harmless: Iterable[str], accepted: Iterable[str]
) -> Verdict:
    """`harmless` are shell patterns of names or paths, `accepted` paths by their owner's word."""
    patterns, allowed = tuple(harmless), frozenset(accepted)
    refused, remedied, noted, differ = [], [], [], []
    for file, now in zip(files, seen, strict=True):
        if why := _impossible(file, now):
            refused.append(f"{file.path}: {why}")
        elif found := _differences(file, now):
            what = f"{file.path}: {'; '.join(found)}"
            if file.path in allowed or _harmless(file, now, patterns):
                differ.append(file.path)
                noted.append(what)
            else:
                refused.append(what)
                remedied.append(file.path)
        elif _rewritten(file, now):
            # As for any program that reads a file while another one writes it.
            noted.append(f"{file.path}: written to meanwhile, {now.size} bytes as before")
    return Verdict(tuple(refused), tuple(remedied), tuple(noted), tuple(differ))


def _rewritten(file: File, now: Seen) -> bool:
    """With the same size. Code is judged by its content; Slurm writes its script at every start."""
    if not file.mtime or now.mtime == file.mtime or set(file.uses) & {"x", "d"}:
        return False
    return not file.path.endswith("/slurm_script")


def _impossible(file: File, now: Seen) -> str:
    """What nobody's word makes right: it can't be opened, or other code would be run in the middle
    of what was begun, or memory would end before the mapping does."""
    if now.error in (errno.ENOENT, errno.ENOTDIR):
        return f"gone ({_size(file)} then)"
    if now.error:
        return f"can't be looked at: {os.strerror(now.error)}"
    if stat.S_IFMT(now.mode) != stat.S_IFMT(file.mode):
        return f"a {_kind(file.mode)} then, a {_kind(now.mode)} now"
    if not now.may:
        how = "written" if set(file.uses) & {"w", "a"} else "read"
        modes = f"mode {_mode(file.mode)} then, {_mode(now.mode)} now"
        return f"its owner may not have it {how} now ({modes})"
    if now.locked:
        # CRIU would wait for it, and the job with its GPUs.
        return "locked by another process meanwhile, so that the session can't have its lock again"
    if "x" in file.uses:
        return _other_code(file, now)
    if "m" in file.uses and now.size < file.size:
        return f"mapped, and shorter: {file.size} bytes then, {now.size} now"
    return ""


def _other_code(file: File, now: Seen) -> str:
    if file.build_id and now.build_id != file.build_id:
        theirs = now.build_id[:16] or "none"
        return f"another build: build-id {file.build_id[:16]} then, {theirs} now"
    if now.size != file.size:
        return f"another program or library: {file.size} bytes then, {now.size} now"
    if file.digest and now.digest != file.digest:
        return f"a program or library with other content, {file.size} bytes as before"
    return ""


def _differences(file: File, now: Seen) -> list[str]:
    """What CRIU would refuse."""
    if "d" in file.uses:
        return []
    found = []
    if file.size >= 0 and now.size != file.size:
        found.append(f"{file.size} bytes then, {now.size} now")
    if now.mode != file.mode:
        found.append(f"mode {_mode(file.mode)} then, {_mode(now.mode)} now")
    return found


def _harmless(file: File, now: Seen, patterns: Sequence[str]) -> bool:
    """Who only ever appends does not care what is there; and what the site calls harmless. A mode
    that changed is somebody's intent, unless it was opened long ago and may be opened again."""
    if now.size != file.size and set(file.uses) <= {"a"}:
        return True
    name = file.path.rpartition("/")[2]
    return any(fnmatchcase(file.path if "/" in p else name, p) for p in patterns)


def _size(file: File) -> str:
    return "a directory" if "d" in file.uses else f"{file.size} bytes"


def _mode(mode: int) -> str:
    return f"{stat.S_IMODE(mode):04o}"


def _kind(mode: int) -> str:
    return {stat.S_IFDIR: "directory", stat.S_IFREG: "file"}.get(stat.S_IFMT(mode), "special file")
