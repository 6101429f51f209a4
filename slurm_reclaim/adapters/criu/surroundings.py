"""What belongs to a session but not to its processes' images: the contents of its private
/dev/shm and /tmp, and the job's output files, which Slurm truncates or writes to at a requeue.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from slurm_reclaim.adapters.criu import command
from slurm_reclaim.adapters.criu.command import Entry
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.tree import PROC, Process, printable
from slurm_reclaim.config.schema import Agent
from slurm_reclaim.errors import DumpFailed, RestoreFailed
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.checkpoint import Credentials, Manifest, OutputFile
from slurm_reclaim.model.node_session import NodeSession

_PIDFD_GETFD = 438  # the same number on every architecture that has it
_TAR = "/usr/bin/tar"
# Their contents, not the directories themselves: those are root's, and their mode can't be set by
# the owner when all is put back.
_SAVE = (
    'archive=$1; shift; cd / && find "$@" -mindepth 1 -maxdepth 1 -print0 | '
    f'{_TAR} --create --file "$archive" --sparse --warning=no-file-ignored '
    "--null --verbatim-files-from --files-from=-"
)
# Put back what the requeue took: if the file no longer begins with what was saved, that comes
# first again and what was written since follows. Same inode: slurmstepd keeps it open to append.
_PUT_BACK = (
    'set -e; saved=$1 size=$2 out=$3 joined=$4; [ -e "$out" ] || exit 0; '
    'if cmp -s -n "$size" "$saved" "$out" && [ "$(stat -Lc %s "$out")" -ge "$size" ]; '
    'then exit 0; fi; cat "$saved" "$out" > "$joined"; cat "$joined" > "$out"'
)


def _why(done: command.Finished, target: Path) -> str:
    """tar's complaint; it says "Wrote only" where the truth is that the disk is full."""
    with suppress(OSError):
        space = os.statvfs(target)
        if space.f_bavail * space.f_frsize < 1 << 20:
            return f"No space left below {target.parent}"
    return done.output.strip()[-300:]


def take_fd(pid: int, fd: int) -> int:
    """A duplicate of another process's descriptor (pidfd_getfd(2)), sharing its file offset."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
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

    def save(self, staged: Path, root: Process) -> None:
        owner = tree.credentials(root)
        archive = os.open(staged / "files.tar", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            words = ["/bin/sh", "-c", _SAVE, "save", f"/proc/self/fd/{archive}", *self._folders()]
            os.fchown(archive, owner.uid, owner.gid)
            done = self._as_owner(owner, words, (archive,), self._config.dump_timeout)
        finally:
            os.fchown(archive, os.geteuid(), os.getegid())
            os.close(archive)
        if not done.ok:
            raise DumpFailed(f"/dev/shm and /tmp could not be saved: {_why(done, staged)}")
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
        opened = os.stat(PROC / str(self._session.relay) / "fd" / str(fd))
        try:
            named = os.stat(inside)
        except PermissionError:
            return True  # root-squashed: the owner can tell, and the copy is made as the owner
        except OSError:
            return False
        return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)

    def _output_path(self, fd: int) -> str | None:
        """Path of the relay's stdout or stderr where it is a regular file."""
        link = PROC / str(self._session.relay) / "fd" / str(fd)
        with suppress(OSError):
            if stat.S_ISREG(os.stat(link).st_mode):
                return os.readlink(link)
        return None

    def _save_output(self, staged: Path, root: Process, path: str, fd: int) -> OutputFile:
        """Copied by the owner, not by root: the file may lie on a root-squashed file system."""
        owner = tree.credentials(root)
        folder = staged / "outputs"
        if not folder.exists():
            folder.mkdir(mode=0o700)
            os.chown(folder, owner.uid, owner.gid)
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            copy = ["/usr/bin/cp", "--reflink=auto", "--", path, f"/proc/self/fd/{at}/{fd}"]
            done = self._as_owner(owner, copy, (at,), self._config.dump_timeout)
        finally:
            os.close(at)
        if not done.ok:
            raise DumpFailed(f"output file {path} could not be saved: {done.output.strip()}")
        return OutputFile(path, f"outputs/{fd}", (folder / str(fd)).stat().st_size, (fd,))

    # -- putting back -------------------------------------------------------------------------

    def put_back(self, folder: Path, manifest: Manifest) -> None:
        if manifest.private_tmp and not self.private_tmp():
            raise RestoreFailed("the session had a private /tmp, which this node does not give it")
        archive = os.open(folder / "files.tar", os.O_RDONLY)
        try:
            words = [
                _TAR, "--extract", "--file", "-", "--directory", "/", "--same-permissions",
                "--no-same-owner", "--no-overwrite-dir",
            ]  # fmt: skip
            done = self._as_owner(
                manifest.credentials, words, (), self._config.restore_timeout, stdin=archive
            )
        finally:
            os.close(archive)
        if not done.ok:
            base = PROC / str(self._session.init) / "root/dev/shm"
            raise RestoreFailed(f"/dev/shm and /tmp could not be put back: {_why(done, base)}")

    def _folders(self) -> list[str]:
        return ["dev/shm", *(["tmp"] if self.private_tmp() else [])]

    def _as_owner(
        self,
        owner: Credentials,
        words: list[str],
        keep: tuple[int, ...],
        timeout: float,
        stdin: int | None = None,
    ) -> command.Finished:
        """Below a directory that users can write to, root opens no path: whoever owns a tree can
        put a symbolic link into it at any moment, and root would follow. The owner gains nothing
        by that. What lies in a private /dev/shm or /tmp is the owner's own anyhow."""
        entry = Entry(join=((self._session.init, "mnt,pid"),), identity=owner, keep=keep)
        return command.run(entry, words, timeout, stdin=stdin)

    def put_back_outputs(self, folder: Path, manifest: Manifest) -> None:
        """The output files come first: whatever becomes of the restore, Slurm has truncated them
        already."""
        for output in manifest.outputs:
            self._put_back_output(folder, output, manifest)

    def _put_back_output(self, folder: Path, output: OutputFile, manifest: Manifest) -> None:
        path = self._output_path(output.fds[0])
        if path is None:
            return
        work = Path(self._config.run) / "work" / f"{self._session.job_id}.out"
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(work, manifest.uid, manifest.gid)
        saved = os.open(folder / output.saved, os.O_RDONLY)
        at = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.chown(folder / output.saved, manifest.uid, manifest.gid)
            script = [
                "/bin/sh", "-c", _PUT_BACK, "put-back", f"/proc/self/fd/{saved}",
                str(output.size), path, f"/proc/self/fd/{at}/joined",
            ]  # fmt: skip
            done = self._as_owner(
                manifest.credentials, script, (saved, at), self._config.restore_timeout
            )
        finally:
            os.chown(folder / output.saved, 0, 0)
            os.close(saved)
            os.close(at)
            shutil.rmtree(work, ignore_errors=True)
        if not done.ok:
            raise RestoreFailed(f"output file {path}: {done.output.strip()}")

    def inherit(self, manifest: Manifest) -> Sequence[tuple[int, str]]:
        """(descriptor, path as dumped) for the output files: this incarnation's own."""
        return [
            (take_fd(self._session.relay, output.fds[0]), output.path)
            for output in manifest.outputs
        ]
