"""What happens when a job starts on this node: ignored, managed, or restored from its image."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from slurm_reclaim.adapters.criu.facts import FactFinder
from slurm_reclaim.adapters.gpu.grant import grant
from slurm_reclaim.adapters.proc import allocation, tree
from slurm_reclaim.adapters.slurm.plugin_here import missing_program
from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.adapters.store.places import AnyStore, directory_of
from slurm_reclaim.adapters.transport import lines
from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.adapters.transport.plugin_socket import InitLink
from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon.aside import in_thread
from slurm_reclaim.daemon.node_sessions import NodeSessions
from slurm_reclaim.daemon.start_terms import block_io_uring, fresh_last_pid, managed_by
from slurm_reclaim.errors import (
    BadRequest,
    IntegrityError,
    OperationFailed,
    ReclaimError,
    StoreUnavailable,
    Unavailable,
)
from slurm_reclaim.model.ids import SessionId, parse_session_id
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living, StartAnswer, StartMode, StartQuestion
from slurm_reclaim.ports import Clock
from slurm_reclaim.stages import node_restore
from slurm_reclaim.stages.node_hibernate import lift_hold
from slurm_reclaim.stages.node_record import save_if_possible

log = logging.getLogger(__name__)

START_PATIENCE = 2.0
MOST_TOLD = 100
RECOVERY_PAUSE = 10.0  # seconds
Images = dict[str, list[int]]  # session id as text -> restart counts of its committed checkpoints


class NodeStarts:
    def __init__(
        self,
        config: Callable[[], Config],
        sessions: NodeSessions,
        store: AnyStore,
        controller: ControllerClient,
        facts: FactFinder,
        clock: Clock,
    ) -> None:
        self._config = config
        self._sessions = sessions
        self._store = store
        self._controller = controller
        self._facts = facts
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        # What the plugin told of jobs whose reclaim-init has not attached yet.
        self._told: dict[int, dict[str, str]] = {}

    # -- start --------------------------------------------------------------------------------

    async def start(self, message: dict[str, str]) -> dict[str, str]:
        """Answer the plugin. Whatever goes wrong here must leave a fresh job alone (S10), and
        must not let a job with an image start from scratch: the controller is asked about every
        job, since the store of this very node may be the wrong one. Raises StoreUnavailable where
        nobody can tell: the plugin then holds back a job that was requeued, and no other."""
        job_id, uid = lines.number(message, "job"), lines.number(message, "uid")
        try:
            answer = await self._decide(job_id, uid, message)
        except OperationFailed as error:
            self._sessions.started_unmanaged(error.message, job_id, uid)
            answer = {"mode": "ignore", "reason": error.message}
        if answer["mode"] != "ignore":
            self._tell(job_id, message)
        return answer

    def _tell(self, job_id: int, message: dict[str, str]) -> None:
        self._told[job_id] = message
        for oldest in list(self._told)[:-MOST_TOLD]:
            del self._told[oldest]

    async def _decide(self, job_id: int, uid: int, message: dict[str, str]) -> dict[str, str]:
        images, trouble = await self._images(job_id, uid)
        answer = await self._ask(job_id, uid, images, START_PATIENCE, trouble)
        mode = StartMode.WAIT if answer is None else answer.mode
        reason = "the job may have an image" if answer is None else answer.reason
        if mode is StartMode.RESTORE or (images and mode is StartMode.WAIT):
            # It reads manifests, which may be far away, or wait for one who fetches them.
            return await asyncio.to_thread(self._answer, "restore", reason, job_id, images)
        if trouble and mode is StartMode.WAIT:
            raise StoreUnavailable(f"{trouble}; {reason}")
        managed, reason = managed_by(self._config(), message)
        if not managed:
            if message.get("option") == "on":
                self._sessions.note("job-not-managed", reason, job_id, uid)
            return {"mode": "ignore", "reason": reason}
        if program := missing_program():
            # Half of them would make a session that can't be saved later.
            raise OperationFailed(f"{program} is missing or can't be run")
        return self._answer("fresh", reason, job_id, {})

    async def _images(self, job_id: int, uid: int) -> tuple[Images, str]:
        """The job's sessions and their committed checkpoints, or why that can't be told."""

        def look() -> Images:
            names = self._store.of_job(job_id, uid)
            return {name: self._store.committed(parse_session_id(name)) for name in names}

        try:
            return await asyncio.to_thread(look), ""
        except (StoreUnavailable, IntegrityError) as error:
            return {}, error.message

    def _answer(self, mode: str, reason: str, job_id: int, images: Images) -> dict[str, str]:
        settings = self._config().session
        last_pid = fresh_last_pid(job_id)
        for name, restarts in ((name, n) for name, numbers in images.items() for n in numbers):
            # What can't be believed can't be restored either: that is found, and said, later.
            # Here it must not become a start from scratch (S10).
            with suppress(IntegrityError, StoreUnavailable):
                needs = self._store.read(parse_session_id(name), restarts).needs
                last_pid = max(last_pid, needs.max_pid)
        return {
            "mode": mode,
            "reason": reason,
            "private_tmp": self._private_tmp(job_id),
            "block_io_uring": "1" if block_io_uring(settings.block_io_uring) else "0",
            "last_pid": str(last_pid),
        }

    def _private_tmp(self, job_id: int) -> str:
        base = self._config().session.private_tmp
        return f"{base}/slurm-reclaim-{job_id}" if base else ""

    async def _ask(
        self, job_id: int, uid: int, images: Images, timeout: float, trouble: str = ""
    ) -> StartAnswer | None:
        """What the controller says of a job with an image, WAIT where it refuses to; None where it
        does not answer. `trouble`: why it is not known which images there are."""
        facts = await asyncio.to_thread(self._facts.facts)
        if trouble:
            # Whatever it looks like by now: no images must not be taken for "there is none" (S10).
            facts = replace(facts, store_ok=False, store_problem=trouble)
        question = StartQuestion(
            node=self._sessions.node,
            job_id=job_id,
            uid=uid,
            facts=facts,
            checkpoints=tuple(f"{name}/{n}" for name, each in images.items() for n in each),
            boot_id=tree.boot_id(),
        )
        try:
            return await self._controller.post(
                "/v1/agent/start", question, StartAnswer, timeout=timeout
            )
        except Unavailable as error:
            log.warning("job=%s starts and the controller is silent: %s", job_id, error)
            return None
        except ReclaimError as error:
            # A no of whatever kind (it takes us for another node, say) is no word about the job's
            # image: what is not known is waited for (S10).
            log.error("job=%s starts and the controller will not say how: %s", job_id, error)
            return StartAnswer(StartMode.WAIT, f"the controller will not say: {error.message}")

    # -- attach -------------------------------------------------------------------------------

    async def attach(self, message: dict[str, str], init: int, link: InitLink) -> None:
        job_id = lines.number(message, "job")
        known = self._sessions.get(job_id)
        start = tree.start_time(init)
        told = self._told.pop(job_id, None)
        if known is not None and known.init == init and known.init_start == start:
            known.held = message.get("held") == "1"
            if not known.gpus_told:
                known.gpus, known.gpus_told = grant(message, told), True
            self._sessions.put(known, link)
            self._spawn(self._show_allocation(known))
            if known.living is Living.RUNNING and known.held:
                self._spawn(self._lift_hold(known))
            self.look_after(known)
            return
        session = self._new(message, init, start)
        session.gpus, session.gpus_told = grant(message, told), True
        self._sessions.put(session, link)
        self._spawn(self._show_allocation(session))
        if session.living is Living.WAITING:
            self._spawn(self._restore(session))

    async def _show_allocation(self, session: NodeSession) -> None:
        run = Path(self._config().agent.run)
        await in_thread(allocation.show, run, session.job_id, session.uid, session.relay)

    def _new(self, message: dict[str, str], init: int, start: int) -> NodeSession:
        mode = message.get("mode", "fresh")
        if mode not in ("fresh", "restore"):
            raise BadRequest(f"mode={mode!r} is not known")
        job_id, relay = lines.number(message, "job"), lines.number(message, "relay")
        root = lines.number(message, "root", 0)
        return NodeSession(
            job_id=job_id,
            uid=lines.number(message, "uid"),
            gid=0,
            restarts=lines.number(message, "restarts", 0),
            mode=mode,
            living=Living.WAITING if mode == "restore" and not root else Living.RUNNING,
            relay=relay,
            relay_start=tree.start_time(relay),
            init=init,
            init_start=start,
            child=lines.number(message, "child", 0),
            root=root,
            held=message.get("held") == "1",
            restored=bool(root),
            started=time.time(),
            private_tmp=self._private_tmp(job_id),
            boot=tree.boot_id(),
        )

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- restore ------------------------------------------------------------------------------

    async def _restore(self, session: NodeSession) -> None:
        self._sessions.busy.add(session.job_id)
        try:
            answer = await self._wait_for_answer(session)
            if answer is not None:
                id = parse_session_id(answer.session)
                # Not the job's own count where Slurm has forgotten some of its runs.
                session.restarts, session.accept = answer.restarts, answer.accept
                await self.bring_back(session, str(id), answer.checkpoint)
        except ReclaimError as error:
            self._fail(session, error.message)
        except Exception as error:
            log.exception("restore of job=%s", session.job_id)
            self._fail(session, f"internal error: {error}")
        finally:
            self._sessions.busy.discard(session.job_id)
            self._sessions.changed.set()

    def _fail(self, session: NodeSession, reason: str) -> None:
        session.living, session.reason = Living.RESTORE_FAILED, reason
        save_if_possible(session, self._sessions.save)

    async def _wait_for_answer(self, session: NodeSession) -> StartAnswer | None:
        """Bounded: a job that can't be restored must not keep the node's GPUs."""
        deadline = time.monotonic() + self._config().session.restore_wait
        reason = "the controller did not answer"
        while tree.same_process(session.init, session.init_start):
            images, trouble = await self._images(session.job_id, session.uid)
            answer = await self._ask(session.job_id, session.uid, images, 10.0, trouble)
            if answer is not None:
                reason = answer.reason
                if answer.mode is StartMode.RESTORE:
                    return answer
                if answer.mode is StartMode.FRESH:
                    self._fail(session, "the image under this job number is of an earlier job")
                    return None
            if time.monotonic() > deadline:
                self._fail(session, f"not restored within the time allowed: {reason}")
                return None
            await asyncio.sleep(1.0)
        return None

    async def bring_back(self, session: NodeSession, id: str, checkpoint: int) -> bool:
        """Restore into the session's waiting namespaces, fresh or in place."""
        began = time.time()
        ok = await in_thread(self._bring_back, session, parse_session_id(id), checkpoint)
        if ok:
            self._sessions.note(
                "session-restored",
                f"restored on {self._sessions.node} from the checkpoint of restart {checkpoint}",
                session.job_id,
                session.uid,
                id,
                {
                    "bytes": session.checkpoint_bytes,
                    "began": round(began, 3),
                    "seconds": round(time.time() - began, 3),
                },
            )
        if ok and session.changed:
            self._sessions.note(
                "files-changed",
                f"changed while it slept: {'; '.join(session.changed[:5])}",
                session.job_id,
                session.uid,
                id,
                {"files": list(session.changed[:MOST_TOLD])},
            )
        return ok

    def _bring_back(self, session: NodeSession, id: SessionId, checkpoint: int) -> bool:
        """Blocking. Nothing of the session is expired meanwhile."""
        with Collection(directory_of(self._store), self._sessions.node).reading(id):
            return node_restore.restore(
                id,
                checkpoint,
                session,
                self._sessions.tree(session),
                self._sessions.link(session),
                self._store,
                self._clock,
                self._sessions.save,
            )

    # -- after an agent restart ---------------------------------------------------------------

    def look_after(self, session: NodeSession) -> None:
        """What nobody is at work on and is half done, is looked at: was it done or not?"""
        if session.job_id in self._sessions.busy:
            return
        if session.living is Living.WAITING:
            self._spawn(self._restore(session))
        elif session.living in _UNFINISHED:
            # Now, so that nobody else begins.
            self._sessions.busy.add(session.job_id)
            self._spawn(self._recover(session))

    async def _recover(self, session: NodeSession) -> None:
        """Until it is done: a frozen tree waits for whatever it was that could not be told, a store
        whose server is away, say."""
        said = ""
        try:
            while self._sessions.lives(session) and session.living in _UNFINISHED:
                if (trouble := await self._recovered(session)) and trouble != said:
                    log.error("recovery of job=%s: %s", session.job_id, trouble)
                said = trouble
                await asyncio.sleep(RECOVERY_PAUSE if trouble else 0)
        finally:
            self._sessions.busy.discard(session.job_id)
            self._sessions.changed.set()

    async def _recovered(self, session: NodeSession) -> str:
        """Why it could not be, "" where it is."""
        from slurm_reclaim.daemon.node_recovery import recover

        try:
            reason = await in_thread(
                recover, session, self._sessions, self._store, self._clock, self._config()
            )
        except ReclaimError as error:
            return error.message
        except Exception as error:
            log.exception("recovery of job=%s", session.job_id)
            return f"internal error: {error}"
        self._sessions.note("agent-recovered", reason, session.job_id, session.uid)
        return ""

    async def _lift_hold(self, session: NodeSession) -> None:
        """Its hold could not be lifted when it was given back (node_hibernate.py)."""
        if session.job_id in self._sessions.busy:
            return
        await in_thread(lift_hold, session, self._sessions.link(session))
        await asyncio.to_thread(save_if_possible, session, self._sessions.save)


_UNFINISHED = frozenset({Living.DUMPING, Living.RESTORING, Living.WAITING})
