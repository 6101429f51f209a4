"""What belongs to a session but not to its processes' images: the contents of its private
/dev/shm and /tmp, and the job's output files, which Slurm truncates or writes to at a requeue.
"""

from __future__ import annotations

import ctypes
import os
import stat
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from slurm_reclaim.adapters.criu import program
from slurm_reclaim.adapters.criu.program import Entry, Finished
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.tree import PROC, Process, printable
from slurm_reclaim.config.schema import Agent
from slurm_reclaim.errors import DumpFailed, RestoreFailed
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.checkpoint import Credentials, Manifest, OutputFile
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.ports import Opened, Staging

_PIDFD_GETFD = 438  # the same number on every architecture that has it
_TAR = "/usr/bin/tar"
# Their contents, not the directories themselves: those are root's, and their mode can't be set by
# the owner when all is put back.
# Longer paths than the kernel takes can be saved, and not put back.
_SAVE = (
    'cd / && if find "$@" -regextype posix-extended -regex ".{4000,}" -print -quit 2>/dev/null | '
    'grep -q .; then echo "a path below them is longer than 4000 bytes" >&2; exit 1; fi && '
    'find "$@" -mindepth 1 -maxdepth 1 -print0 | '
    f"{_TAR} --create --file - --sparse --xattrs --acls --warning=no-file-ignored "
    "--null --verbatim-files-from --files-from=-"
)
# Does the file still begin with what was saved? With _A_PART, it is no more than the beginning of
# that: truncated by Slurm, or put back on a disk that was full.
_COMPARE = (
    'size=$(stat -Lc %s "$1") || exit 1; [ "$size" -lt "$2" ] || exec cmp -s -n "$2" - "$1"; '
    'cmp -s -n "$size" - "$1" && exit 3; exit 1'
)
_A_PART = 3


FILES = "files.tar"


def _why(done: Finished, target: Path) -> str:
    """tar's complaint; it says "Wrote only" where the truth is that the disk is full."""
    with suppress(OSError):
        space = os.statvfs(target)
        if space.f_bavail * space.f_frsize < 1 << 20:
            return f"No space left below {target.parent}"
    return _last_words(done)


def _last_words(done: Finished) -> str:
    return "it took too long" if done.late else done.output.strip()[-300:]


def take_fd(pid: int, fd: int) -> int:
    """A duplicate of another process's descriptor (pidfd_getfd(2)), sharing its file offset."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = tree.pidfd(pid)
    try:
        taken = libc.syscall(_PIDFD_GETFD, pidfd, fd, 0)
        if taken < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), f"descriptor {fd} of process {pid}")
        return int(taken)
    finally:
        os.close(pidfd)


class Surroundings:
    """Saves and puts back; `outputs` is known after `save`."""

    def __init__(self, session: NodeSession, config: Agent) -> None:
        self._session = session
        self._config = config
        self.outputs: tuple[OutputFile, ...] = ()

    def private_tmp(self) -> bool:
        """Whether the session's /tmp is its own: ours, or that of job_container/tmpfs. Seen on the
        mounts themselves, since both vanish at a requeue."""
        theirs, ours = os.stat(PROC / str(self._session.init) / "root/tmp"), os.stat("/tmp")
        return (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino)

    # -- saving -------------------------------------------------------------------------------

    def save(self, staged: Staging, root: Process) -> None:
        owner = tree.credentials(root)
        with staged.receive(FILES) as archive:
            words = ["/bin/sh", "-c", _SAVE, "save", *self.folders()]
            done = self._as_owner(owner, words, self._config.dump_timeout, stdout=archive)
            if not done.ok:  # inside: what it started may be stopped, and hold the pipe open
                raise DumpFailed(
                    staged.trouble() or f"/dev/shm and /tmp could not be saved: {_last_words(done)}"
                )
        outputs: dict[str, OutputFile] = {}
        for fd in (1, 2):
            path = self._output_path(fd)
            if path is None:
                continue
            if path in outputs:
                known = outputs[path]
                outputs[path] = OutputFile(path, known.saved, known.size, (*known.fds, fd))
                continue
            outputs[path] = self._save_output(staged, root, path, fd)
        self.outputs = tuple(outputs.values())

    def blockers(self) -> list[Blocker]:
        """Output files that can't be followed: by a name that no manifest can hold, or that does
        not lead, within the session, to the file that Slurm opened."""
        found = []
        for fd in (1, 2):
            path = self._output_path(fd)
            if path is None:
                continue
            if printable(path) != path:
                hint = "job output files need names in UTF-8"
                found.append(Blocker("output-name", f"{printable(path)} can't be recorded", hint))
            elif not self._leads_to(path, fd):
                what = f"the job's output file {path} is not there in the session"
                hint = "it was deleted or replaced, or lies in /tmp, which is private here"
                found.append(Blocker("output-file", what, hint))
        return list(dict.fromkeys(found))

    def _leads_to(self, path: str, fd: int) -> bool:
        inside = PROC / str(self._session.init) / "root" / path.lstrip("/")
        try:
            opened = os.stat(PROC / str(self._session.relay) / "fd" / str(fd))
            named = os.stat(inside)
        except PermissionError:
            return True  # root is kept out: the copy is made as the owner, who can tell
        except OSError:
            return False
        return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)

    def output_bytes(self) -> int:
        """What the copies of the output files will take."""
        paths = {self._output_path(fd): fd for fd in (1, 2)}
        size = 0
        for link in (f"{PROC}/{self._session.relay}/fd/{fd}" for path, fd in paths.items() if path):
            with suppress(PermissionError):  # root is kept out: the dump will meet the end
                size += os.stat(link).st_size
        return size

    def output_paths(self) -> frozenset[bytes]:
        """Where the job's output files are, as the session has them open."""
        return frozenset(os.fsencode(path) for fd in (1, 2) if (path := self._output_path(fd)))

    def _output_path(self, fd: int) -> str | None:
        """Path of the relay's stdout or stderr where it is a regular file."""
        link = PROC / str(self._session.relay) / "fd" / str(fd)
        with suppress(OSError):
            path = os.readlink(link)
            try:
                regular = stat.S_ISREG(os.stat(link).st_mode)
            except PermissionError:
                regular = path.startswith("/")  # root is kept out; no device lies there
            return path if regular else None
        return None

    def _save_output(self, staged: Staging, root: Process, path: str, fd: int) -> OutputFile:
        """Read by the owner, not by root: the file may lie on a root-squashed file system."""
        owner = tree.credentials(root)
        with staged.receive(f"outputs-{fd}") as copy:
            words = ["/usr/bin/cat", "--", path]
            done = self._as_owner(owner, words, self._config.dump_timeout, stdout=copy)
            if not done.ok:
                why = staged.trouble() or _last_words(done)
                raise DumpFailed(f"output file {path} could not be saved: {why}")
        return OutputFile(path, f"outputs-{fd}", staged.size(f"outputs-{fd}"), (fd,))

    # -- putting back -------------------------------------------------------------------------

    def put_back(self, opened: Opened) -> None:
        manifest = opened.manifest
        if manifest.private_tmp and not self.private_tmp():
            raise RestoreFailed("the session had a private /tmp, which this node does not give it")
        words = [
            _TAR, "--extract", "--file", "-", "--directory", "/", "--same-permissions",
            "--no-same-owner", "--no-overwrite-dir", "--xattrs", "--acls",
        ]  # fmt: skip
        with opened.send(FILES) as archive:
            owner = manifest.credentials
            done = self._as_owner(owner, words, self._config.restore_timeout, stdin=archive)
        if not done.ok:
            base = PROC / str(self._session.init) / "root/dev/shm"
            raise RestoreFailed(f"/dev/shm and /tmp could not be put back: {_why(done, base)}")

    def folders(self) -> list[str]:
        """Those whose contents are saved."""
        return ["dev/shm", *(["tmp"] if self.private_tmp() else [])]

    def _as_owner(
        self,
        owner: Credentials,
        words: list[str],
        timeout: float,
        stdin: BinaryIO | None = None,
        stdout: BinaryIO | None = None,
    ) -> Finished:
        """Below a directory that users can write to, root opens no path: whoever owns a tree can
        put a symbolic link into it at any moment, and root would follow. And such a helper of the
        owner's, who can look into it, is given nothing of ours but descriptors of files that are
        root's: they can't be opened anew through /proc."""
        entry = Entry(join=((self._session.init, "mnt,pid"),), identity=owner)
        return program.run(entry, words, timeout, stdin=stdin, stdout=stdout)

    def put_back_outputs(self, opened: Opened) -> None:
        """Before anything else of the restore, and whatever becomes of it: Slurm has truncated them
        already."""
        for output in opened.manifest.outputs:
            self._put_back_output(opened, output)

    def _put_back_output(self, opened: Opened, output: OutputFile) -> None:
        """If the file no longer begins with what was saved, that comes first again, and what was
        written since follows. Same inode: slurmstepd keeps it open to append."""
        path = self._output_path(output.fds[0])
        if path is None:
            return
        owner, timeout = opened.manifest.credentials, self._config.restore_timeout
        with opened.send(output.saved) as saved:
            words = ["/bin/sh", "-c", _COMPARE, "compare", path, str(output.size)]
            compared = self._as_owner(owner, words, timeout, stdin=saved)
        if compared.ok:
            return
        with tempfile.TemporaryFile(dir=opened.work) as joined:
            with opened.send(output.saved) as saved:
                done = self._as_owner(owner, ["/usr/bin/cat"], timeout, saved, joined)
            if not done.ok:
                raise RestoreFailed(f"output file {path}: {_last_words(done)}")
            part = compared.status == _A_PART
            if not part:
                words = ["/usr/bin/cat", "--", path]
                done = self._as_owner(owner, words, timeout, stdout=joined)
            if part or done.ok:
                joined.seek(0)
                words = ["/bin/sh", "-c", 'cat > "$1"', "put-back", path]
                done = self._as_owner(owner, words, timeout, stdin=joined)
        if not done.ok:
            raise RestoreFailed(f"output file {path}: {_last_words(done)}")

    def inherit(self, manifest: Manifest) -> Sequence[tuple[int, str]]:
        """(descriptor, path as dumped) for the output files: this incarnation's own. They are the
        caller's to close. Raises OSError."""
        with ExitStack() as taken:
            found = []
            for output in manifest.outputs:
                found.append((take_fd(self._session.relay, output.fds[0]), output.path))
                taken.callback(os.close, found[-1][0])
            taken.pop_all()
            return found
