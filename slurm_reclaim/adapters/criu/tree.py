"""A session's process tree on this node: dumped, resumed, killed and restored with CRIU."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from slurm_reclaim.adapters.criu import command, credentials, images, mending, program
from slurm_reclaim.adapters.criu.description import describe
from slurm_reclaim.adapters.criu.fitting import Fitting
from slurm_reclaim.adapters.criu.program import Entry, Finished, Running
from slurm_reclaim.adapters.criu.surroundings import Surroundings
from slurm_reclaim.adapters.cuda.half import GpuHalf
from slurm_reclaim.adapters.jupyter.processes import is_server
from slurm_reclaim.adapters.proc import (
    blockers,
    cgroup,
    repair,
    rights,
    sockets,
    steps,
    terminals,
    tree,
)
from slurm_reclaim.adapters.proc.tree import Process
from slurm_reclaim.config.schema import Config
from slurm_reclaim.errors import (
    DumpFailed,
    IntegrityError,
    OperationFailed,
    ProgrammingError,
    RestoreFailed,
    Unavailable,
)
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.checkpoint import Contents, Credentials, Manifest, Rights
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.sample import Reading, Signal
from slurm_reclaim.ports import Opened, Staging


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A directory descriptor: CRIU, as the user, reaches the directory through it alone, because
    everything above it is closed to users."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


class SessionTree:
    """Fulfils ports.Tree. `note_worker` is told the process at work, CRIU or the one that calls the
    CUDA driver, so that an agent started anew can wait for it instead of disturbing it; `save`
    makes the session's record durable. `jupyter` asks the session's servers how its kernels are
    now, None where there are none; `on_gpus` tells the bytes of GPU memory it was measured with."""

    def __init__(
        self,
        session: NodeSession,
        config: Config,
        node: str,
        note_worker: Callable[[int], None],
        save: Callable[[], None],
        jupyter: Callable[[], Reading | None],
        on_gpus: Callable[[], int] = lambda: 0,
    ) -> None:
        self._session = session
        self._config = config.agent
        self._node = node
        self._note_worker = note_worker
        self._save = save
        self._jupyter = jupyter
        self._clocks = (0, 0)
        self._received: dict[int, int] = {}
        self._frozen: list[Process] = []
        self._rights: dict[int, Rights] = {}
        self._criu: Running | None = None
        self._shut: list[repair.Ends] = []
        self._oom_kills = 0
        self._gpus = GpuHalf(session, config.gpu, save, note_worker, on_gpus)
        self._surroundings = Surroundings(session, config.agent)
        self._fitting = Fitting(session, config.agent, self._surroundings, self._gpus.limit)

    # -- looking ------------------------------------------------------------------------------

    def _members(self) -> list[Process]:
        """While the tree is frozen, as it was found then: every look is at all of /proc."""
        return self._frozen or tree.members(self._session.init)

    def _root(self, members: Sequence[Process] | None = None) -> Process:
        """The tree's root, whether it was started here or restored."""
        wanted = self._session
        for process in self._members() if members is None else members:
            if (wanted.child and process.pid == wanted.child) or (
                wanted.root and process.inner == wanted.root
            ):
                return process
        raise DumpFailed("the session's first process is gone")

    def blockers(self) -> Sequence[Blocker]:
        session, members = self._session, self._members()
        try:
            root = self._root(members)
        except DumpFailed as error:
            return [Blocker("no-process", error.message, "the batch script has ended")]
        on_gpus = self._gpus.blockers(members)
        with ThreadPoolExecutor(1) as beside:
            # Its files are looked at by a program that runs as the owner, which is waited for.
            of_files = beside.submit(
                self._fitting.blockers, members, root, self._gpus.devices, self._gpus.held
            )
            return [
                *blockers.find(members, root=root.pid, relay=session.relay, uid=session.uid),
                *on_gpus,
                *self._surroundings.blockers(),
                *self._steps(),
                *of_files.result(),
            ]

    def _steps(self) -> list[Blocker]:
        return steps.outside(self._session.relay, self._session.init, self._session.uid)

    def memory(self) -> int:
        outputs = self._surroundings.output_bytes()
        return blockers.memory(self._members()) + self._gpus.held + outputs

    def used(self, since: float, optional: Collection[str]) -> Sequence[str]:
        # First: what comes while Jupyter is asked counts as having arrived. Where it is not known
        # `activity` can't tell either, and says so.
        with suppress(Unavailable):
            self._received = sockets.received(self._members(), self._servers())
        found = self._typed(since)
        reading = self._jupyter()
        if reading is None:
            return found
        if reading.value is None:
            unknown = [] if Signal.JUPYTER.value in optional else [f"unknown: {reading.what}"]
            return [*found, *unknown]
        return [*found, reading.what] if reading.value > 0 or reading.last > since else found

    def activity(self, since: float) -> Sequence[str]:
        waiting = [f"input waits on {name}" for name in terminals.unread(self._session.init)]
        arrived = sockets.arrived(self._members(), self._received, self._servers())
        return [*self._typed(since), *waiting, *arrived]

    def _servers(self) -> set[int]:
        """PIDs of Jupyter servers. A name that can't be read is nobody's server."""
        return {p.pid for p in self._members() if is_server(tree.command_line(p.pid))}

    def _typed(self, since: float) -> list[str]:
        init = self._session.init
        try:
            logins = steps.terminals(self._session.relay, init)
            used = terminals.input_since(since, init, logins)
        except OSError as error:
            raise DumpFailed(f"its terminals can't be seen: {error.strerror}") from error
        return [f"input arrived on {name}" for name in used]

    # -- saving -------------------------------------------------------------------------------

    def owner(self) -> Credentials:
        return tree.credentials(self._root())

    def dump(self, staged: Staging) -> None:
        members = self._members()
        root = self._root(members)
        owner = tree.credentials(root)
        self._session.stopped = tuple(p.inner for p in members if p.state in "Tt")
        self._fitting.prepare()
        self._gpus.take(lambda: tree.members(self._session.init))
        caps: tuple[str, ...] = command.DUMP_CAPS
        if root.status.get("Seccomp") == "2":
            caps += command.SECCOMP_CAPS
        if blockers.watching(members):
            caps += command.INOTIFY_CAPS
        with _opened(staged.criu) as fd:
            entry = Entry(
                join=((self._session.init, "mnt,pid"), (root.pid, "time")),
                identity=owner,
                caps=caps,
                keep=(fd,),
                tracer=True,
            )
            words = command.dump(self._config.criu, root.inner, fd, self._config.ghost_limit)
            with self._at_work(entry, words) as running:
                done = program.finish(running, self._config.dump_timeout, staged.cut)
        if not done.ok:
            trouble = "" if done.late else staged.trouble()
            why = trouble or self._why("dump", done, staged.criu / "dump.log")
            raise DumpFailed(why)
        staged.settle()
        self._clocks = tree.clocks(root.pid)
        self._frozen = tree.members(self._session.init)
        self._gpus.see_nobody_came()
        if started := self._steps():
            raise DumpFailed(f"a job step started meanwhile: {started[0].what}")
        self._rights = rights.of_tree(self._frozen)
        credentials.check(staged.images, owner, self._rights)
        mending.see_in_flight(staged.images)
        mending.see_closing(staged.images)

    @contextmanager
    def _at_work(self, entry: Entry, words: list[str]) -> Iterator[Running]:
        """It is to be finished inside, and ended where that does not come to pass."""
        running = command.start(entry, words)
        try:
            self._note_worker(running.pid)
            yield running
        finally:
            running.end()
            self._note_worker(0)

    def _why(self, what: str, done: Finished, log: Path) -> str:
        if done.late:
            return f"CRIU {what} took too long and was stopped"
        if done.status == -signal.SIGKILL:
            return f"CRIU {what} was killed, not by us (the kernel, for want of memory?)"
        reason = command.complaints(log) or done.output.strip()[-300:] or f"status {done.status}"
        return f"CRIU {what} failed: {reason}"

    def save_surroundings(self, staged: Staging) -> None:
        self._surroundings.save(staged, self._root())

    def describe(self, staged: Staging, contents: Contents, reason: str) -> Manifest:
        if (running := tree.continued(self._frozen)) is not None:
            # By its owner, or with the job (`scontrol resume`): what it has done is in no image.
            raise DumpFailed(f"{running} was continued while the session was being saved")
        members = self._members()
        needs, files = self._fitting.record(staged.images, members, self._gpus.needs())
        return describe(
            session=self._session,
            root=self._root(),
            node=self._node,
            reason=reason,
            clocks=self._clocks,
            contents=contents,
            outputs=self._surroundings.outputs,
            needs=needs,
            processes=len(members),
            rights=rights.grouped(self._rights),
            private_tmp=self._surroundings.private_tmp(),
            files=files,
        )

    # -- afterwards ---------------------------------------------------------------------------

    def resume(self) -> None:
        self._frozen = []
        members = self._members()
        repair.end(members)
        self._gpus.give_back(members)
        self.let_run()

    def let_run(self) -> None:
        """SIGCONT for all but those that the user had stopped (Ctrl-Z) before."""
        stopped, stopping = set(self._session.stopped), self._gpus.stopping
        frozen = [p for p in self._members() if p.state in "Tt" or p.pid in stopping]
        tree.signal_all([p for p in frozen if p.inner not in stopped], signal.SIGCONT)
        self._gpus.limit.put_back()

    def kill(self) -> None:
        self._frozen = []
        repair.cut(self._members())
        dead = tree.kill_all(self._session.init)
        self._gpus.over()
        if not dead:
            left = [str(p) for p in self._members() if p.state not in "ZX"]
            raise OperationFailed(f"could not be killed: {', '.join(left[:5])}")

    # -- bringing back ------------------------------------------------------------------------

    def put_back_outputs(self, opened: Opened) -> None:
        self._surroundings.put_back_outputs(opened)

    def fits(self, manifest: Manifest) -> Sequence[str]:
        return self._fitting.check(manifest)

    @contextmanager
    def coming_back(self, opened: Opened) -> Iterator[None]:
        """CRIU looks at the kernel first, which takes it a moment, and then waits for an image."""
        try:
            with _opened(opened.criu) as fd, self._handed_over(opened.manifest) as inherit:
                entry, words = self._entry_of(opened.manifest, fd, inherit)
                with self._at_work(entry, words) as self._criu:
                    yield
                self._criu = None
        except OSError as error:
            raise RestoreFailed(f"{error.filename or ''}: {error.strerror}") from error

    @contextmanager
    def _handed_over(self, manifest: Manifest) -> Iterator[Sequence[tuple[int, str]]]:
        inherit = self._surroundings.inherit(manifest)
        try:
            yield inherit
        finally:
            for fd, _ in inherit:
                os.close(fd)

    def restore(self, opened: Opened) -> None:
        manifest, criu = opened.manifest, self._criu
        if criu is None:
            raise ProgrammingError("restored only while it is coming back")
        self._oom_kills = cgroup.oom_kills_of(self._session.relay)
        try:
            self._prepare(opened)
            self._session.unfinished = bool(self._shut)
            if self._shut:
                self._save()
            opened.give()
            done = program.finish(criu, self._config.restore_timeout)
            if why := opened.trouble():
                raise IntegrityError(why)
            if not done.ok:
                why = self._why("restore", done, opened.criu / "restore.log")
                raise RestoreFailed(why + self._short_of_memory())
            self._see_alive(manifest)
            repair.shut(self._members(), self._shut)
            self._session.unfinished = False
            self._gpus.bring_back(manifest.needs, self._members())
        except BaseException as error:
            tree.kill_all(self._session.init)
            if isinstance(error, OSError):
                raise RestoreFailed(f"{error.filename or ''}: {error.strerror}") from error
            raise
        finally:
            self._gpus.limit.put_back()

    def _short_of_memory(self) -> str:
        """CRIU restores in the job's cgroup and needs some memory for each process of its own."""
        if cgroup.oom_kills_of(self._session.relay) <= self._oom_kills:
            return ""
        job = self._session.job_id
        return (
            "; the job's memory limit was reached, more of it: "
            f"scontrol update JobId={job} MinMemoryNode=..."
        )

    def _prepare(self, opened: Opened) -> None:
        """Edit the copy that only root can reach, and that CRIU is given from; put back what CRIU
        does not."""
        private, manifest = opened.images, opened.manifest
        known = rights.of_threads(manifest.rights)
        credentials.check(private, manifest.credentials, known)
        images.close_outside_tcp(private)
        self._shut = mending.mend(private, manifest.uid)
        images.resume_interrupted_calls(private)
        self._fitting.edit(private)
        if manifest.seccomp:
            images.drop_seccomp(private)
        self._surroundings.put_back(opened)
        self._gpus.expect(manifest.needs)

    def _entry_of(
        self, manifest: Manifest, images_fd: int, inherit: Sequence[tuple[int, str]]
    ) -> tuple[Entry, list[str]]:
        session = self._session
        entry = Entry(
            join=((session.init, "mnt,pid"),),
            cgroups_of=session.relay,
            affinity_of=session.relay,
            offsets=(
                manifest.monotonic - time.clock_gettime_ns(time.CLOCK_MONOTONIC),
                manifest.boottime - time.clock_gettime_ns(time.CLOCK_BOOTTIME),
            ),
            block_io_uring=manifest.seccomp,
            identity=manifest.credentials,
            caps=command.RESTORE_CAPS,
            keep=(images_fd, *(fd for fd, _ in inherit)),
        )
        return entry, command.restore(self._config.criu, images_fd, inherit)

    def _see_alive(self, manifest: Manifest) -> None:
        """CRIU's word is not enough: the root runs, nobody is missing, and nobody has gained
        anything."""
        members = self._members()
        root = next((p for p in members if p.inner == manifest.root_pid), None)
        if root is None or root.state in "ZX":
            raise RestoreFailed("CRIU reported success but the first process does not run")
        session = self._session
        if what := rights.gained(members, manifest.rights, session.init, session.relay):
            raise RestoreFailed(f"it came back with more rights than it had: {what}")

    def whole(self, manifest: Manifest) -> bool:
        """Whether a restore that nobody saw the end of had come to it, and nobody has gained
        anything by it."""
        session, members = self._session, self._members()
        living = [p for p in members if p.state not in "ZX"]
        if len(living) < manifest.processes or all(p.inner != manifest.root_pid for p in members):
            return False
        gained = rights.gained(members, manifest.rights, session.init, session.relay)
        if session.unfinished or gained:
            return False
        return self._gpus.whole(manifest.needs, living)
