"""The files that the images name: recorded with the dump, and looked at, as their owner, before
anything of a restore starts."""

from __future__ import annotations

import base64
import marshal
import os
import select
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from slurm_reclaim.adapters.criu import look, program
from slurm_reclaim.adapters.criu.images import messages, parsed
from slurm_reclaim.adapters.criu.program import Entry
from slurm_reclaim.adapters.in_memory import file_of
from slurm_reclaim.adapters.proc.opened import letters
from slurm_reclaim.errors import OperationFailed
from slurm_reclaim.model.checkpoint import Credentials, File
from slurm_reclaim.policy.changed import Seen

_MOST_ANSWER = 64 << 20  # bytes; an owner can make our look say anything
_ON_FILES = 0xC0  # VMA_FILE_PRIVATE, VMA_FILE_SHARED (CRIU's include/image.h)
_EXECUTE = 4
Question = tuple[bytes, str, bool, list[str]]  # of look.py
# Made anew with every session, or the kernel's own.
_ELSEWHERE = (b"/proc/", b"/sys/", b"/dev/")


def shown(path: bytes) -> str:
    """A path as it can be written into JSON and shown to people."""
    return path.decode("utf-8", "backslashreplace")


def raw(file: File) -> bytes:
    return base64.b64decode(file.raw) if file.raw else file.path.encode()


def named(images: Path, leave_out: Collection[bytes]) -> Iterator[File]:
    """What CRIU will open by its path, each path once. `leave_out`: folders whose contents are put
    back, and files that are handed over."""
    uses = _mapped(images)
    gone = set()
    if (remaps := images / "remap-fpath.img").exists():
        gone = {each.orig_id for each in messages(remaps, "RemapFilePath")}
    found: dict[bytes, File] = {}
    for each in messages(images / "files.img", "File"):
        reg = each.reg
        if not each.HasField("reg") or reg.id in gone:
            continue
        if reg.name.startswith(_ELSEWHERE) or _inside(reg.name, leave_out):
            continue
        kind = stat.S_IFMT(reg.mode)
        if kind not in (stat.S_IFREG, stat.S_IFDIR):
            continue
        how = uses.get(reg.id, set()) | set(letters(reg.flags))
        before = found.get(reg.name)
        how |= set(before.uses) if before is not None else set()
        told = "d" if kind == stat.S_IFDIR else "".join(sorted(how))
        # of those that are only appended to CRIU tells no size
        size = reg.size if reg.HasField("size") else -1
        found[reg.name] = _file(reg.name, size, reg.mode, told)
    yield from found.values()


def _file(name: bytes, size: int, mode: int, uses: str) -> File:
    path = shown(name)
    odd = "" if path.encode() == name else base64.b64encode(name).decode()
    return File(path=path, size=size, mode=mode, uses=uses, raw=odd)


def _inside(name: bytes, folders: Collection[bytes]) -> bool:
    return any(name == folder or name.startswith(folder + b"/") for folder in folders)


def _mapped(images: Path) -> dict[int, set[str]]:
    """File id -> how it is mapped."""
    found: dict[int, set[str]] = {}
    for path in images.glob("mm-*.img"):
        for memory in messages(path, "Memory"):
            for raw_vma in memory.vmas:
                vma = parsed(path, raw_vma, "Vma")
                if vma.status & _ON_FILES:
                    how = found.setdefault(vma.shmid, set())
                    how |= {"m", "x"} if vma.prot & _EXECUTE else {"m"}
    return found


def recorded(
    images: Path,
    leave_out: Collection[bytes],
    seen: Mapping[bytes, Seen],
    locks: Mapping[bytes, Collection[str]],
) -> tuple[File, ...]:
    """For the manifest: sizes as CRIU saw them, and by path what only a look before the freeze
    could tell of the content (`seen`) and the `locks`."""
    found = []
    for file in named(images, leave_out):
        before, held = seen.get(raw(file)), locks.get(raw(file), ())
        file = replace(file, locks=tuple(sorted(held)))
        if before is not None and not before.error:
            file = replace(
                file,
                size=before.size if file.size < 0 else file.size,
                mtime=before.mtime,
                build_id=before.build_id,
                digest=before.digest,
            )
        found.append(file)
    return tuple(sorted(found, key=lambda f: f.path))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A path to be looked at, for `uses` in the letters of model File; `locks`: see whether they
    can be had again."""

    path: bytes
    uses: Iterable[str]
    locks: Collection[str] = ()


def seen_by_owner(
    owner: Credentials, init: int, wanted: Sequence[Wanted], timeout: float
) -> list[Seen]:
    """What is at these paths, in the mount namespace of `init`. Raises OperationFailed where it
    can't be found out."""
    if not wanted:
        return []
    question: list[Question] = [
        (each.path, _access(each.uses), "x" in each.uses, sorted(each.locks)) for each in wanted
    ]
    # Not in its PID namespace: whoever looks at the session meanwhile would take it for a stray.
    answer = _ask(Entry(join=((init, "mnt"),), identity=owner), question, timeout)
    try:
        found = msgspec.json.decode(answer, type=list[Seen])
    except msgspec.MsgspecError as error:
        raise OperationFailed(f"what became of its files is not known: {error}") from error
    if len(found) != len(wanted):
        raise OperationFailed("what became of its files is not known: an answer too few")
    return found


def _access(uses: Iterable[str]) -> str:
    """Whoever only appends need not be able to read."""
    how = set(uses)
    return ("r" if how & {"r", "m", "x"} else "") + ("w" if how & {"w", "a"} else "")


def _ask(entry: Entry, question: list[Question], timeout: float) -> bytes:
    """Run look.py as a program of the owner's, who may make it write without end."""
    deadline = time.monotonic() + timeout
    words = [os.path.realpath("/proc/self/exe"), "-I", "-S", "-c", Path(look.__file__).read_text()]
    reading, writing = os.pipe()
    try:
        with os.fdopen(writing, "wb") as out, file_of(marshal.dumps(question), "question") as asked:
            running = program.start(entry, words, stdin=asked, stdout=out)
        answer = _read(reading, deadline)
    finally:
        os.close(reading)
    done = program.finish(running, max(0.1, deadline - time.monotonic()))
    if not done.ok:
        why = done.output.strip()[-300:] or f"status {done.status}"
        raise OperationFailed(f"its files can't be looked at: {why}")
    return answer


def _read(fd: int, deadline: float) -> bytes:
    """Until the end, the deadline, or too much of it."""
    os.set_blocking(fd, False)
    ready = select.poll()
    ready.register(fd, select.POLLIN)
    blocks, size = [], 0
    while size < _MOST_ANSWER and (left := deadline - time.monotonic()) > 0:
        if not ready.poll(left * 1000):
            break
        block = os.read(fd, 1 << 16)
        if not block:
            break
        blocks.append(block)
        size += len(block)
    return b"".join(blocks)
