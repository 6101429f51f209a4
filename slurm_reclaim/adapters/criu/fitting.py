"""What a session needs of a node, taken down with its dump; and whether it is there, looked at
before anything of a restore starts: its files, its ports, its memory."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from slurm_reclaim.adapters.criu import files, images
from slurm_reclaim.adapters.criu.description import node_needs
from slurm_reclaim.adapters.criu.facts import libc
from slurm_reclaim.adapters.criu.files import Wanted
from slurm_reclaim.adapters.criu.surroundings import Surroundings
from slurm_reclaim.adapters.gpu import given
from slurm_reclaim.adapters.proc import (
    blockers,
    cgroup,
    file_blockers,
    filesystems,
    headroom,
    opened,
    tree,
)
from slurm_reclaim.adapters.proc.memory_limit import MemoryLimit, copied
from slurm_reclaim.adapters.proc.opened import Opened
from slurm_reclaim.adapters.proc.tree import Process
from slurm_reclaim.config.schema import Agent
from slurm_reclaim.errors import DoesNotFit, OperationFailed
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.checkpoint import File, GpuNeeds, Manifest, Needs
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.words import amount
from slurm_reclaim.policy import changed
from slurm_reclaim.policy.changed import Seen

_LOOK = 60.0  # seconds for a look at all files; a file server may have to wake up
_MOST_NAMED = 50
_MOST_TEXT = 10_000  # characters


class Fitting:
    """Of one session, for one dump or one restore."""

    def __init__(
        self,
        session: NodeSession,
        config: Agent,
        surroundings: Surroundings,
        limit: MemoryLimit,
    ) -> None:
        self._session = session
        self._config = config
        self._surroundings = surroundings
        self._limit = limit
        self._seen: dict[bytes, Seen] = {}
        self._locks: dict[bytes, set[str]] = {}
        self._needs: Needs | None = None
        self._differ: frozenset[bytes] = frozenset()

    # -- before the dump ----------------------------------------------------------------------

    def blockers(
        self, members: Sequence[Process], root: Process, devices: Collection[str], on_gpus: int
    ) -> list[Blocker]:
        """Those of files, but for `devices`, and of memory: `on_gpus` bytes will come into it. What
        is seen of files here is what the manifest will say."""
        living = [p for p in members if p.state not in "ZX"]
        there = opened.files(living)
        mounted = filesystems.mounted(self._session.init)
        saved = self._saved()
        found = list(
            file_blockers.find(
                there,
                ghost_limit=self._config.ghost_limit,
                saved=saved,
                mounted=mounted,
                devices={os.fsencode(path) for path in devices},
                mounts=filesystems.mount_ids(self._session.init),
            )
        )
        found += self._for_gpus(on_gpus)
        by_path = {o.path: o for o in there if opened.has_a_path(o)}
        wanted = [Wanted(path, o.uses) for path, o in by_path.items()]
        owner = tree.credentials(root)
        try:
            seen = files.seen_by_owner(owner, self._session.init, wanted, _LOOK)
        except OperationFailed as error:
            return [*found, Blocker("files-unknown", error.message, "see the agent's log")]
        self._seen = {
            each.path: now
            for each, now in zip(wanted, seen, strict=True)
            if now.error or stat.S_ISREG(now.mode)
        }
        self._locks = {path: o.locks for path, o in by_path.items() if o.locks}
        outputs = self._surroundings.output_paths()
        for path, now in self._seen.items():
            if path not in outputs and not _inside(path, saved):
                found += _unusable(by_path[path], now)
        return found

    def _for_gpus(self, held: int) -> list[Blocker]:
        """GPU memory is copied into the job's own before the dump; with more than there is room
        for, the kernel would end the session."""
        size = copied(held)
        why = self._limit.lacks(size, most=size) if held else ""
        if not why:
            return []
        what = f"its GPUs hold {amount(held)}, {why}"
        return [Blocker("memory-headroom", what, "free GPU memory, or ask for more with --mem")]

    def prepare(self) -> None:
        """Before the freeze: what takes a moment."""
        self._needs = node_needs(self._config.criu)

    def _saved(self) -> tuple[bytes, ...]:
        return tuple(f"/{folder}".encode() for folder in self._surroundings.folders())

    # -- with the dump ------------------------------------------------------------------------

    def record(
        self, folder: Path, members: Sequence[Process], gpu: GpuNeeds | None
    ) -> tuple[Needs, tuple[File, ...]]:
        """`folder`: the images. `gpu` is what lay on GPUs, and lies in the memory now."""
        needs = self._needs or node_needs(self._config.criu)
        leave_out = {*self._saved(), *self._surroundings.output_paths()}
        found = files.recorded(folder, leave_out, self._seen, self._locks)
        paths = [files.raw(file) for file in found]
        counted = cgroup.memory_bytes(cgroup.of_process(self._session.relay))
        library = libc()
        mapped = next((f for f in found if f.path == library.path and "x" in f.uses), None)
        needs = replace(
            needs,
            max_pid=images.highest_pid(folder),
            # What a cgroup counts may be seconds old, and less than one process has by now.
            memory=max(counted or 0, blockers.largest(members, "RssAnon")),
            hugepages=blockers.largest(members, "HugetlbPages"),
            listening=images.listening(folder),
            mounts=filesystems.places_of(paths, filesystems.mounted()),
            glibc=library.version if mapped is not None else "",
            glibc_build=mapped.build_id if mapped is not None else "",
            gpu=gpu,
        )
        return needs, found

    # -- before the restore -------------------------------------------------------------------

    def check(self, manifest: Manifest) -> Sequence[str]:
        """Raises DoesNotFit, which names all that is not as it must be. Returns what has changed
        and is no hindrance, as sentences."""
        wanted = [Wanted(files.raw(file), file.uses, file.locks) for file in manifest.files]
        try:
            seen = files.seen_by_owner(manifest.credentials, self._session.init, wanted, _LOOK)
        except OperationFailed as error:
            raise DoesNotFit(error.message) from error
        verdict = changed.judge(
            manifest.files, seen, self._config.harmless_files, self._session.accept
        )
        needs = manifest.needs
        problems = [*self._room(needs), *headroom.refused_ports(needs.listening)]
        if needs.gpu is not None:
            problems += given.lacks(needs.gpu, self._session.gpus)
        if verdict.refused:
            problems.append(_told(verdict, manifest.job_id))
        if problems:
            raise DoesNotFit("; ".join(problems))
        by_path = {file.path: files.raw(file) for file in manifest.files}
        self._differ = frozenset(by_path[path] for path in verdict.differ)
        return verdict.noted

    def edit(self, work: Path) -> None:
        """In the private copy of the images: what differs is opened as it is now."""
        if self._differ:
            images.take_as_they_are(work, self._differ)

    def _room(self, needs: Needs) -> list[str]:
        found = []
        node = headroom.of_node()
        # What was on GPUs is in the memory for a while only.
        passing = copied(needs.gpu.used) if needs.gpu is not None else 0
        if why := self._limit.lacks(needs.memory, most=passing):
            found.append(f"{why}, the checkpoint needs {amount(needs.memory)}")
        if node is not None and node < needs.memory:
            found.append(
                f"{amount(node)} of memory is available here, "
                f"the checkpoint needs {amount(needs.memory)}"
            )
        if needs.hugepages and (free := filesystems.hugepages("free_hugepages")) < needs.hugepages:
            found.append(
                f"{amount(free)} is free in huge pages, "
                f"the checkpoint needs {amount(needs.hugepages)}"
            )
        return found


def _inside(path: bytes, folders: Sequence[bytes]) -> bool:
    return any(path.startswith(folder + b"/") for folder in folders)


def _unusable(each: Opened, now: Seen) -> list[Blocker]:
    """Open already, but its owner could not open it again."""
    name = file_blockers.shown(each)
    if now.error in (errno.ENOENT, errno.ENOTDIR):
        what = f"{each.holder} has {name} open, which is not found by that name any more"
        return [Blocker("file-not-found", what, "close it")]
    if now.error or not now.may:
        what = f"{each.holder} has {name} open, which its owner may not open (again)"
        return [Blocker("file-not-allowed", what, "change the file's mode, or close it")]
    return []


def _told(verdict: changed.Verdict, job: int) -> str:
    """All of them with both values, and the remedies; what would fill pages is counted."""
    count = len(verdict.refused)
    named = _bounded(verdict.refused)
    if count > len(named):
        named.append(f"and {count - len(named)} more")
    text = f"{count} file{'s' if count > 1 else ''} changed while the session slept: "
    text += "; ".join(named) + ". Put back what was there"
    if verdict.remedied:
        words = [f"--accept-changed {shlex.quote(path)}" for path in verdict.remedied]
        text += f", or have it opened as it is: reclaim restore {job} {' '.join(_bounded(words))}"
    return text


def _bounded(sentences: Sequence[str]) -> list[str]:
    found: list[str] = []
    size = 0
    for sentence in sentences[:_MOST_NAMED]:
        size += len(sentence)
        if found and size > _MOST_TEXT:
            break
        found.append(sentence)
    return found
