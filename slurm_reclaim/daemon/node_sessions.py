"""The sessions of this node: what is known of each, on disk and in hand."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from slurm_reclaim.adapters.criu.tree import SessionTree
from slurm_reclaim.adapters.jupyter.meter import JupyterMeter
from slurm_reclaim.adapters.proc import allocation, terminals, tree
from slurm_reclaim.adapters.store.records import SessionRecords
from slurm_reclaim.adapters.transport.plugin_socket import InitLink
from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon.node_meters import census
from slurm_reclaim.daemon.node_samples import NodeSamples
from slurm_reclaim.errors import AgentUnavailable
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living, SessionReport
from slurm_reclaim.model.sample import Reading, Signal
from slurm_reclaim.model.session import Progress
from slurm_reclaim.stages.node_record import save_if_possible

log = logging.getLogger(__name__)

NEVER_TAKEN = -1000  # oom_score_adj
MOST_EVENTS = 20_000  # that wait for the controller
_GONE = ".gone-"


class NodeSessions:
    """Used from the event loop, but for `save` and the links, which worker threads use too."""

    def __init__(
        self, config: Config, node: str, records: SessionRecords, samples: NodeSamples
    ) -> None:
        self._config = config
        self.samples = samples
        self.node = node
        self._records = records
        self._lock = threading.Lock()
        self._links: dict[int, InitLink] = {}
        self.busy: set[int] = set()
        self._unsaved: set[int] = set()
        self.changed = asyncio.Event()
        self.events: list[Event] = []
        self.sessions = {s.job_id: s for s in records.load()}
        self._boot = tree.boot_id()
        self._inits: dict[int, tree.Followed] = {}
        self.sweep("it ended while the agent was away")
        allocation.sweep(Path(config.agent.run), self.sessions)

    def get(self, job_id: int) -> NodeSession | None:
        return self.sessions.get(job_id)

    def lives(self, session: NodeSession) -> bool:
        """Whether it is still this one that the agent has, and its job has not ended."""
        return self.sessions.get(session.job_id) is session and self._lives(session)

    def _lives(self, session: NodeSession) -> bool:
        if session.boot not in ("", self._boot):
            return False
        init = self._inits.get(session.job_id)
        if init is None or (init.pid, init.start) != (session.init, session.init_start):
            init = tree.Followed(session.init, session.init_start)
            self._inits[session.job_id] = init
        return init.lives()

    def sweep(self, why: str = "the job ended unseen") -> None:
        """Forget those whose end nobody saw: it came before their reclaim-init had attached to this
        agent, or took longer than `left` waits. And write down what could not be before."""
        for session in list(self.sessions.values()):
            if session.job_id not in self.busy and not self._lives(session):
                self.forget(session, why)
            elif session.job_id in self._unsaved:
                save_if_possible(session, self.save)

    def put(self, session: NodeSession, link: InitLink) -> None:
        before = self.sessions.get(session.job_id)
        if before is not None and before is not session:
            self._remove_staged(before)
        self.sessions[session.job_id] = session
        self._links[session.job_id] = link
        self.save(session)
        self.changed.set()

    def save(self, session: NodeSession) -> None:
        with self._lock:
            if self.sessions.get(session.job_id) is session:
                self._unsaved.add(session.job_id)
                self._records.save(session)
                self._unsaved.discard(session.job_id)

    def forget(self, session: NodeSession, why: str) -> None:
        with self._lock:
            if self.sessions.get(session.job_id) is not session:
                return  # the next of the same job may be in its place, and in its directories
            del self.sessions[session.job_id]
            self._unsaved.discard(session.job_id)
            self._inits.pop(session.job_id, None)
            self._records.forget(session)
            allocation.withdraw(Path(self._config.agent.run), session.job_id)
        log.info("session job=%s is over on this node: %s", session.job_id, why)
        if session.private_tmp:
            threading.Thread(target=_remove, args=(session.private_tmp,)).start()
        if session.session and session.job_id not in self.busy:
            folder = f"{self._config.agent.state}/work/{session.session.rpartition('/')[2]}"
            threading.Thread(target=_remove, args=(folder,)).start()
        self._remove_staged(session)
        self.changed.set()

    def _remove_staged(self, session: NodeSession) -> None:
        """Gone by rename where it was committed; else it is a user's memory without an owner.
        Whoever is still at work commits or discards it: what begins to delete it here would go on
        in the directory that the commit has renamed (S1)."""
        if session.staged and session.job_id not in self.busy:
            threading.Thread(target=shutil.rmtree, args=(session.staged, True)).start()

    def note(
        self,
        kind: str,
        reason: str,
        job_id: int = 0,
        uid: int = -1,
        session: str = "",
        details: dict[str, str | int | float | list[str]] | None = None,
    ) -> None:
        log.info("%s job=%s: %s", kind, job_id, reason)
        event = Event(
            at=time.time(),
            kind=kind,
            reason=reason,
            session=session,
            job_id=job_id,
            uid=uid,
            node=self.node,
            details=details or {},
        )
        self.events.append(event)
        # A controller that is away for days must not cost the node its memory.
        del self.events[:-MOST_EVENTS]
        self.changed.set()

    def started_unmanaged(self, problem: str, job_id: int, uid: int) -> None:
        """S10: said of a job that we would have managed."""
        reason = f"the job started as if slurm-reclaim weren't there: {problem}"
        self.note("job-started-unmanaged", reason, job_id, uid)

    # -- links --------------------------------------------------------------------------------

    def link(self, session: NodeSession) -> SessionLink:
        return SessionLink(lambda: self._links.get(session.job_id))

    async def left(self, link: InitLink) -> None:
        """A connection broke: the job ended, or reclaim-init will attach anew."""
        for job_id, known in list(self._links.items()):
            if known is link:
                del self._links[job_id]
                session = self.sessions.get(job_id)
                if session is not None:
                    await self._wait_for_end(session)

    async def _wait_for_end(self, session: NodeSession) -> None:
        for _ in range(50):
            if not self._lives(session):
                self.forget(session, "the job ended or was requeued")
                return
            await asyncio.sleep(0.1)

    # -- processes ----------------------------------------------------------------------------

    def tree(self, session: NodeSession) -> SessionTree:
        def worker(pid: int) -> None:
            session.worker, session.worker_start = pid, tree.start_time(pid) if pid else 0
            if pid and session.living is Living.DUMPING:
                # Who dies between two ptrace(2) calls takes with it what it had in hand. Not for a
                # restore: what comes back would inherit it.
                tree.adjust_oom_score(pid, NEVER_TAKEN)
            # CRIU is at work already, or has done it: nobody may turn away from it for a full disk.
            save_if_possible(session, self.save)

        def jupyter() -> Reading | None:
            return JupyterMeter(session).read(0.0).get(Signal.JUPYTER.value)

        def on_gpus() -> int:
            return sum(max(0, gpu.memory) for gpu in self.samples.of(session).gpus)

        def save() -> None:
            self.save(session)

        return SessionTree(session, self._config, self.node, worker, save, jupyter, on_gpus)

    def reports(self) -> tuple[SessionReport, ...]:
        """Reads /proc; for a worker thread."""
        found = []
        for session in list(self.sessions.values()):
            if not self._lives(session):
                continue
            try:
                found.append(self._report(session))
            except Exception:
                log.exception("session job=%s can't be looked at", session.job_id)
        return tuple(found)

    def _report(self, session: NodeSession) -> SessionReport:
        told = self.samples.of(session)
        processes, memory = _size(session, told.measured)
        return SessionReport(
            job_id=session.job_id,
            uid=session.uid,
            restarts=session.restarts,
            living=session.living,
            session=session.session,
            started=session.started,
            processes=processes,
            memory=memory,
            last_activity=told.last_input or terminals.last_input(session.init),
            reason=session.reason,
            restored=session.restored,
            checkpoint=session.checkpoint,
            checkpoint_bytes=session.checkpoint_bytes,
            needs=session.needs,
            progress=self._progress(session),
            blockers=session.blockers,
            looked=session.looked,
            samples=told.samples,
            gpus=told.gpus,
        )

    def _progress(self, session: NodeSession) -> Progress:
        """Bytes done: while restoring, what the tree has in memory again."""
        step = session.progress.step
        if session.living is Living.RESTORING and step == "restore":
            members = tree.members(session.init)
            done = sum(int(p.status.get("RssAnon", "0 kB").split()[0]) for p in members) * 1024
            total = session.checkpoint_bytes
            return Progress(step, min(done, total), total, time.time())
        return session.progress


def _size(session: NodeSession, measured: bool) -> tuple[int, int]:
    """How many processes the session has, and the bytes of memory that its job holds. While it is
    not `measured` its processes come and go."""
    known = census(session)
    if not (measured and known.inside):
        # Not by the census: it reads command lines, which a process that hangs can hold up, and
        # this is the thread of all sessions' reports.
        return len(tree.members(session.init)), known.memory()
    return len(known.inside), known.memory()


def _remove(folder: str) -> None:
    """What a requeued session had in its /tmp is in its checkpoint. Renamed first, because the
    job may start here again before all is deleted; to a name that nobody can have taken before, in
    a directory where others may write, too."""
    place = Path(folder)
    with suppress(OSError):
        _aside(place, f"{folder}{_GONE}{secrets.token_hex(8)}")
    with suppress(OSError):
        # And what an agent that died has left of it.
        for gone in place.parent.glob(f"{place.name}{_GONE}*"):
            shutil.rmtree(gone, ignore_errors=True)


def _aside(folder: Path, name: str) -> None:
    """Unless a reclaim-init holds it that has not attached yet (spank/session/tmp.c): the job may
    have started again here before the agent did."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(folder, name)
    except BlockingIOError:
        log.info("%s is in use again, and stays", folder)
    finally:
        os.close(fd)


class SessionLink:
    """ports.Link over whichever connection the session's reclaim-init has now: it attaches anew
    within a second when the agent was restarted."""

    def __init__(self, current: Callable[[], InitLink | None], patience: float = 15.0) -> None:
        self._current = current
        self._patience = patience

    def _live(self) -> InitLink:
        deadline = time.monotonic() + self._patience
        while True:
            link = self._current()
            if link is not None and not link.closed:
                return link
            if time.monotonic() > deadline:
                raise AgentUnavailable("reclaim-init of the session is not attached")
            time.sleep(0.1)

    def hold(self) -> None:
        self._live().hold()

    def unhold(self) -> None:
        self._live().unhold()

    def adopt_root(self, inner_pid: int) -> None:
        self._live().adopt_root(inner_pid)

    def end(self, status: int) -> None:
        self._live().end(status)
