"""A small world for the controller: Slurm, nodes, agents and a store, all in memory.

It breaks a rule of design.md section 5 by failing the test on the spot: a requeue without a
committed image (S1), two living incarnations (S3), an image that is passed over (S10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from slurm_reclaim.adapters.slurm.nodeset import NodeSetNames
from slurm_reclaim.errors import RequeueFailed, SchedulerUnavailable
from slurm_reclaim.model.catalogue import (
    StoreAnswer,
    StoredCheckpoint,
    StoredSession,
    StoreTask,
)
from slurm_reclaim.model.ids import parse_session_id
from slurm_reclaim.model.job import Job, JobDetail, Node
from slurm_reclaim.model.order import (
    STORE_VERBS,
    Living,
    Order,
    Outcome,
    Report,
    ReportReply,
    Result,
    SessionReport,
    StartAnswer,
    StartMode,
    StartQuestion,
    Verb,
)
from slurm_reclaim.model.sample import Sample
from slurm_reclaim.model.upload import Upload, UploadState
from tests.unit.controller.simulated import ALICE, Agent, SimJob, Tree


class Crash(BaseException):
    """The controller's process dies here."""


class BrokenRule(AssertionError):
    """An invariant does not hold."""


class World:
    """`calls` counts what the controller asked of Slurm and wrote into the journal; `crash_at`
    (number, before or after the effect) is where it dies."""

    def __init__(self, nodes: int = 2) -> None:
        self.time = 1_800_000_000.0
        self.jobs_by_id: dict[int, SimJob] = {}
        self.agents = {f"n{i}": Agent(f"n{i}") for i in range(1, nodes + 1)}
        self.node_states = {name: frozenset({"idle"}) for name in self.agents}
        self.images: dict[tuple[int, int], dict[str, set[int]]] = {}
        self.operators = {"root", "olga"}
        self.calls: list[str] = []
        self.crash_at: tuple[int, str] | None = None
        self.silent = False
        # Of the store at a remote place: whether it is away, and what waits for its upload where.
        self.away = ""
        self.uploads: dict[str, tuple[Upload, ...] | None] = {}
        self.refuse_requeue = ""
        self.store_ahead = 0.0
        self.history: list[str] = []
        self.nodes_asked = 0
        self.tells_freed = True

    # -- clock and crashes --------------------------------------------------------------------

    def now(self) -> float:
        self.time += 0.001
        return self.time

    @contextmanager
    def effect(self, name: str) -> Iterator[None]:
        number = len(self.calls)
        self.calls.append(name)
        if self.crash_at == (number, "before"):
            raise Crash(f"before {name}")
        yield
        if self.crash_at == (number, "after"):
            raise Crash(f"after {name}")

    # -- ports.Scheduler ----------------------------------------------------------------------

    async def jobs(self) -> list[Job]:
        await self._answer()
        with self.effect("jobs"):
            return [self._row(job) for job in self.jobs_by_id.values()]

    async def nodes(self) -> list[Node]:
        await self._answer()
        self.nodes_asked += 1
        return [Node(name, states, ("main",)) for name, states in self.node_states.items()]

    async def detail(self, job_id: int) -> JobDetail | None:
        await self._answer()
        with self.effect("detail"):
            job = self.jobs_by_id.get(job_id)
            if job is None:
                return None
            return JobDetail(
                self._row(job), job.comment, job.admin_comment, job.excluded, job.batch,
                job.requeue, job.node_count, job.het, "", "", "", job.admin_hold,
            )  # fmt: skip

    async def annotate(self, job_id: int, *, comment: str, admin_comment: str) -> None:
        await self._answer()
        with self.effect("annotate"):
            job = self._known(job_id)
            job.comment, job.admin_comment = comment, admin_comment

    async def requeue(self, job_id: int) -> None:
        await self._requeue(job_id, "requeue", "PENDING", held=False)

    async def requeue_held(self, job_id: int, *, special_exit: bool) -> None:
        state = "SPECIAL_EXIT" if special_exit else "PENDING"
        await self._requeue(job_id, "requeue_held", state, held=True)

    async def _requeue(self, job_id: int, how: str, state: str, *, held: bool) -> None:
        await self._answer()
        with self.effect(how):
            job = self._known(job_id)
            if job.state in ("PENDING", "SPECIAL_EXIT", "COMPLETING"):
                raise RequeueFailed("Job is pending execution")
            if self.refuse_requeue:
                raise RequeueFailed(self.refuse_requeue)
            self._check_s1(job)
            job.completing_to, job.held, job.state = state, held, "COMPLETING"
            self.history.append(f"requeue {job_id} from {job.node}")

    async def prepare_held(
        self, job_id: int, *, time_limit: int, excluded_nodes: str, start_now: bool, comment: str
    ) -> None:
        await self._answer()
        with self.effect("prepare_held"):
            job = self._known(job_id)
            if job.state not in ("PENDING", "SPECIAL_EXIT"):
                raise RequeueFailed("Job is not pending")
            if set(NodeSetNames().expand(excluded_nodes)) - self.node_states.keys():
                raise RequeueFailed("Invalid node name specified")
            job.excluded = excluded_nodes
            job.time_limit = -(-time_limit // 60) * 60 if time_limit else job.time_limit
            job.begin = 0.0 if start_now else job.begin
            job.comment = comment or job.comment

    async def release(self, job_id: int) -> None:
        await self._answer()
        with self.effect("release"):
            job = self._known(job_id)
            if not job.held:
                raise RequeueFailed("Job is not held")
            job.held, job.admin_hold, job.state = False, False, "PENDING"

    async def hold(self, job_id: int) -> None:
        await self._answer()
        with self.effect("hold"):
            job = self._known(job_id)
            if job.state not in ("PENDING", "SPECIAL_EXIT"):
                raise RequeueFailed("Job is not pending")
            job.held = job.admin_hold = True

    async def cancel(self, job_id: int) -> None:
        await self._answer()
        with self.effect("cancel"):
            job = self._known(job_id)
            if not (job.held and job.admin_hold):
                raise BrokenRule(f"{job_id} cancelled, and its owner could have released it")
            job.state, job.held = "CANCELLED", False

    async def operator(self, user: str) -> bool:
        await self._answer()
        return user in self.operators

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if self.silent:
            raise SchedulerUnavailable("Unable to contact slurm controller")

    def _known(self, job_id: int) -> SimJob:
        if job_id not in self.jobs_by_id:
            raise RequeueFailed("Invalid job id specified")
        return self.jobs_by_id[job_id]

    def _row(self, job: SimJob) -> Job:
        return Job(
            job_id=job.job_id, uid=job.uid, user="alice" if job.uid == ALICE else "bob",
            name="nb", account="phys", partition="main", qos="normal", state=job.state,
            reason=job.reason, restarts=job.restarts, submitted=job.submitted,
            started=int(job.started), ends=0, time_limit=job.time_limit,
            time_used=int(self.time - job.started) if job.node else 0,
            nodes=self._nodes_of(job), held=job.held,
            array_job_id=job.array[0] if job.array else 0,
            array_task=job.array[1] if job.array else None,
        )  # fmt: skip

    def _nodes_of(self, job: SimJob) -> tuple[str, ...]:
        others = (f"x{number}" for number in range(1, job.node_count))
        return (job.node, *others) if job.node else ()

    # -- the rules ----------------------------------------------------------------------------

    def _check_s1(self, job: SimJob) -> None:
        image = any(self.images.get((job.job_id, job.uid), {}).values())
        alive = [a.node for a in self.agents.values() if self._tree(a, job) is not None]
        if not image or alive:
            raise BrokenRule(f"S1: {job.job_id} requeued, image {image}, living on {alive}")

    def _tree(self, agent: Agent, job: SimJob) -> Tree | None:
        tree = agent.trees.get(job.job_id)
        return tree if tree is not None and tree.alive and tree.uid == job.uid else None

    def _check_s3(self, job: SimJob) -> None:
        living = [a.node for a in self.agents.values() if self._tree(a, job) is not None]
        if len(living) > 1:
            raise BrokenRule(f"S3: {job.job_id} lives on {living}")

    # -- what Slurm and the nodes do by themselves ----------------------------------------------

    def submit(self, job_id: int, **more: object) -> SimJob:
        job = replace(SimJob(job_id, submitted=int(self.time)), **more)  # type: ignore[arg-type]
        self.jobs_by_id[job_id] = job
        return job

    def tick(self, seconds: float = 10.0) -> None:
        self.time += seconds
        for job in self.jobs_by_id.values():
            if job.state == "COMPLETING":
                self._complete(job)
            elif job.state == "PENDING" and not job.held and job.begin <= self.time:
                self._schedule(job)

    def _complete(self, job: SimJob) -> None:
        if job.node:
            self.agents[job.node].trees.pop(job.job_id, None)
        job.state, job.completing_to = job.completing_to, ""
        if job.state in ("PENDING", "SPECIAL_EXIT"):
            job.restarts += 1
            job.submitted, job.node = int(self.time), ""
            job.begin = self.time + 120

    def _schedule(self, job: SimJob) -> None:
        excluded = set(NodeSetNames().expand(job.excluded))
        for name, agent in self.agents.items():
            if name in excluded or "down" in self.node_states[name]:
                continue
            job.state, job.node, job.started = "RUNNING", name, self.time
            image = any(self.images.get((job.job_id, job.uid), {}).values())
            living = Living.WAITING if image else Living.RUNNING
            agent.trees[job.job_id] = Tree(job.job_id, job.uid, job.restarts, living)
            self.history.append(f"start {job.job_id} on {name} {living.value}")
            self._check_s3(job)
            return

    def finish(self, job_id: int, state: str = "COMPLETED") -> None:
        job = self.jobs_by_id[job_id]
        if job.node:
            self.agents[job.node].trees.pop(job_id, None)
        job.state, job.held = state, False

    def lose_node(self, name: str) -> None:
        """The node is cut off: Slurm requeues its jobs, its agent is silent, its trees live on."""
        self.agents[name].up = False
        self.node_states[name] = frozenset({"down"})
        for job in self.jobs_by_id.values():
            if job.node == name and job.state == "RUNNING":
                job.state, job.node = "PENDING", ""
                job.restarts += 1
                job.submitted, job.begin = int(self.time), self.time + 120

    def boot_unseen(self, name: str) -> None:
        """Its power fails and comes back before Slurm has noticed: its jobs are RUNNING to it."""
        old = self.agents[name]
        self.agents[name] = Agent(name, facts=old.facts, boot=f"{old.boot}1")

    # -- agents -------------------------------------------------------------------------------

    def obey(self, agent: Agent, order: Order) -> None:
        """Once, however often it is given."""
        if order.id in agent.done or (order.verb is Verb.PREFLIGHT and not agent.looks):
            return
        if order.verb is Verb.NOTIFY and agent.deaf:
            return
        agent.done.add(order.id)
        if order.verb in STORE_VERBS:
            agent.results[order.id] = self._store_work(agent, order)
            return
        tree = agent.trees.get(order.job_id)
        if tree is not None and (seen := self._look(agent, order)) is not None:
            agent.results[order.id] = seen
            return
        outcome, reason, size = Outcome.REFUSED, "no such session", 0
        if tree is not None and tree.restarts == order.restarts:
            outcome, reason = self._carry_out(agent, tree, order)
            size = 1234567 if outcome is Outcome.DONE else 0
        agent.results[order.id] = Result(
            order.id, order.session, order.restarts, order.verb, outcome, reason,
            bytes=size, seconds=0.5, at=self.time, needs=agent.needs if size else None,
            freed_gpu=agent.needs.vram if size and self.tells_freed else 0,
        )  # fmt: skip

    def _store_work(self, agent: Agent, order: Order) -> Result:
        task, answer = order.store or StoreTask(), StoreAnswer()
        if self.away:
            self.history.append(f"{order.verb.value}: {self.away}")
            return Result(
                order.id, "", 0, order.verb, Outcome.FAILED, self.away, at=self.time,
                store=StoreAnswer(away=True),
            )  # fmt: skip
        if any(self._waits(task.session, n) for n in task.restarts):
            missing = "there is no committed checkpoint"
            return Result(order.id, "", 0, order.verb, Outcome.FAILED, missing, at=self.time)
        if order.verb is Verb.CATALOGUE:
            answer = StoreAnswer(sessions=tuple(self.catalogue()))
        elif order.verb is Verb.EXPIRE:
            self._check_s6(task)
            for found in self.images.values():
                found.get(task.session, set()).difference_update(task.restarts)
            self.history.append(f"expired {task.session} {task.restarts}")
            answer = StoreAnswer(freed=100, deleted=task.restarts)
        return Result(
            order.id, "", 0, order.verb, Outcome.DONE, "", at=self.time + self.store_ahead,
            store=answer,
        )  # fmt: skip

    def catalogue(self) -> Iterator[StoredSession]:
        for found in self.images.values():
            for session, numbers in found.items():
                there = sorted(n for n in numbers if not self._waits(session, n))
                checkpoints = tuple(StoredCheckpoint(n, 1.0, 100) for n in there)
                if checkpoints:
                    yield StoredSession(session, checkpoints)

    def _waits(self, session: str, restarts: int) -> bool:
        upload = Upload(session, restarts, UploadState.PENDING)
        return any(upload in (told or ()) for told in self.uploads.values())

    def _check_s6(self, task: StoreTask) -> None:
        """What could be needed must stay: the newest image of a job that can still start."""
        id = parse_session_id(task.session)
        job = self.jobs_by_id.get(id.job_id)
        numbers = self.images[id.job_id, id.uid][task.session]
        if job is not None and max(numbers) in task.restarts:
            raise BrokenRule(f"S6: {task.session} {task.restarts} expired, {job.state}")

    def _look(self, agent: Agent, order: Order) -> Result | None:
        """Orders that change nothing on a session."""
        told = {"order": order.id, "session": order.session, "restarts": order.restarts}
        told |= {"verb": order.verb, "outcome": Outcome.DONE, "reason": ""}
        if order.verb is Verb.PREFLIGHT:
            return Result(**told, blockers=agent.blockers)  # type: ignore[arg-type]
        if order.verb is Verb.NOTIFY:
            agent.terminal_texts.append(order.text)
            return Result(**told, count=agent.terminals)  # type: ignore[arg-type]
        if order.verb is Verb.CANCEL:
            return Result(**told)  # type: ignore[arg-type]
        return None

    def _carry_out(self, agent: Agent, tree: Tree, order: Order) -> tuple[Outcome, str]:
        if order.verb is Verb.HIBERNATE:
            if agent.hibernate is not Outcome.DONE:
                return agent.hibernate, f"sim: {agent.hibernate.value}"
            if tree.living is not Living.RUNNING:
                return Outcome.REFUSED, f"the session is {tree.living.value}"
            tree.session, tree.living, tree.checkpoint = (
                order.session,
                Living.COMMITTED,
                tree.restarts,
            )
            images = self.images.setdefault((tree.job_id, tree.uid), {})
            images.setdefault(order.session, set()).add(tree.restarts)
            return Outcome.DONE, order.reason
        if agent.restore_fails:
            tree.living, tree.reason = Living.RESTORE_FAILED, agent.restore_fails
            return Outcome.FAILED, agent.restore_fails
        tree.living, tree.restored = Living.RUNNING, True
        self._check_s3(self.jobs_by_id[tree.job_id])
        return Outcome.DONE, "restored in place"

    def question(self, agent: Agent, tree: Tree) -> StartQuestion:
        found = self.images.get((tree.job_id, tree.uid), {})
        names = tuple(f"{name}/{n}" for name, numbers in found.items() for n in sorted(numbers))
        return StartQuestion(agent.node, tree.job_id, tree.uid, agent.facts, names, agent.boot)

    def restore(self, agent: Agent, tree: Tree, answer: StartAnswer) -> None:
        if answer.mode is StartMode.WAIT:
            return
        if answer.mode is StartMode.FRESH:
            tree.living = Living.RUNNING
            return
        newest = max(self.images[tree.job_id, tree.uid][answer.session])
        if answer.checkpoint != newest:
            raise BrokenRule(f"S10: checkpoint {answer.checkpoint} chosen, {newest} is newer")
        tree.session, tree.restarts = answer.session, answer.restarts
        changed = agent.changed_file and agent.changed_file not in answer.accept
        if agent.restore_fails or changed:
            why = agent.restore_fails or f"{agent.changed_file} changed"
            tree.living, tree.reason = Living.RESTORE_FAILED, why
            return
        tree.living, tree.restored = Living.RUNNING, True
        self.history.append(f"restored {tree.job_id} on {agent.node}")
        self._check_s3(self.jobs_by_id[tree.job_id])

    def report(self, agent: Agent) -> Report:
        sessions = tuple(
            SessionReport(
                t.job_id, t.uid, t.restarts, t.living, t.session, processes=3 if t.alive else 0,
                reason=t.reason, restored=t.restored, checkpoint=t.checkpoint, started=t.started,
                checkpoint_bytes=1234567 if t.checkpoint >= 0 else 0,
                needs=agent.needs if t.checkpoint >= 0 else None, samples=self._samples(agent, t),
                blockers=agent.blockers, looked=agent.looked, gpus=agent.gpus,
            )
            for t in agent.trees.values()
        )  # fmt: skip
        return Report(
            agent.node,
            agent.boot,
            self.time,
            agent.facts,
            sessions,
            tuple(agent.results.values()),
            uploads=self.uploads.get(agent.node, ()),
        )

    def _samples(self, agent: Agent, tree: Tree) -> tuple[Sample, ...]:
        """All that was measured since the last one."""
        if tree.living is not Living.RUNNING or not agent.measures:
            return ()
        began, tree.measured = tree.measured or self.time - 10.0, self.time
        return (Sample(self.time, self.time - began, dict(agent.readings)),)

    def heard(self, agent: Agent, reply: ReportReply) -> None:
        for order in reply.acknowledged:
            agent.results.pop(order, None)
        for job, name in reply.names.items():
            agent.trees[int(job)].session = name
