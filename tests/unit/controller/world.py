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
from slurm_reclaim.model.job import Job, JobDetail, Node
from slurm_reclaim.model.order import (
    Living,
)
from slurm_reclaim.model.upload import Upload
from tests.unit.controller.nodes import BrokenRule, Nodes
from tests.unit.controller.simulated import ALICE, Agent, SimJob, Tree


class Crash(BaseException):
    """The controller's process dies here."""


class World(Nodes):
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

    async def annotate(self, name: str, *, comment: str, admin_comment: str) -> None:
        await self._answer()
        with self.effect("annotate"):
            job = self._known(name)
            job.comment, job.admin_comment = comment, admin_comment

    async def requeue(self, name: str) -> None:
        await self._requeue(name, "requeue", "PENDING", held=False)

    async def requeue_held(self, name: str, *, special_exit: bool) -> None:
        state = "SPECIAL_EXIT" if special_exit else "PENDING"
        await self._requeue(name, "requeue_held", state, held=True)

    async def _requeue(self, name: str, how: str, state: str, *, held: bool) -> None:
        await self._answer()
        with self.effect(how):
            job = self._known(name)
            if job.state in ("PENDING", "SPECIAL_EXIT", "COMPLETING"):
                raise RequeueFailed("Job is pending execution")
            if self.refuse_requeue:
                raise RequeueFailed(self.refuse_requeue)
            self._check_s1(job)
            job.completing_to, job.held, job.state = state, held, "COMPLETING"
            self.history.append(f"requeue {name} from {job.node}")

    async def prepare_held(
        self, name: str, *, time_limit: int, excluded_nodes: str, start_in: int, comment: str
    ) -> None:
        await self._answer()
        with self.effect("prepare_held"):
            job = self._known(name)
            if job.state not in ("PENDING", "SPECIAL_EXIT", "RESV_DEL_HOLD"):
                raise RequeueFailed("Job is not pending")
            if set(NodeSetNames().expand(excluded_nodes)) - self.node_states.keys():
                raise RequeueFailed("Invalid node name specified")
            job.excluded = excluded_nodes
            job.time_limit = -(-time_limit // 60) * 60 if time_limit else job.time_limit
            job.begin = self.time + start_in if start_in >= 0 else job.begin
            job.comment = comment or job.comment

    async def release(self, name: str) -> None:
        await self._answer()
        with self.effect("release"):
            job = self._known(name)
            if not job.held:
                raise RequeueFailed("Job is not held")
            job.held, job.admin_hold, job.state = False, False, "PENDING"

    async def hold(self, name: str) -> None:
        await self._answer()
        with self.effect("hold"):
            job = self._known(name)
            if job.state not in ("PENDING", "SPECIAL_EXIT", "RESV_DEL_HOLD"):
                raise RequeueFailed("Job is not pending")
            job.held = job.admin_hold = True

    async def cancel(self, name: str) -> None:
        await self._answer()
        with self.effect("cancel"):
            job = self._known(name)
            if not (job.held and job.admin_hold):
                raise BrokenRule(f"{name} cancelled, and its owner could have released it")
            job.state, job.held = "CANCELLED", False

    async def operator(self, user: str) -> bool:
        await self._answer()
        return user in self.operators

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if self.silent:
            raise SchedulerUnavailable("Unable to contact slurm controller")

    def _known(self, name: str) -> SimJob:
        """The job of this name, `7` or `20_1`. To Slurm the number of an array's last task is the
        whole array: its other tasks would be changed with it."""
        number, _, task = name.partition("_")
        for job in self.jobs_by_id.values():
            if job.array == (int(number), int(task or -1)):
                return job
        job = None if task else self.jobs_by_id.get(int(number))
        if job is None:
            raise RequeueFailed("Invalid job id specified")
        if job.array is not None and job.array[0] == job.job_id:
            raise BrokenRule(f"{name} is a whole array")
        return job

    def _row(self, job: SimJob) -> Job:
        return Job(
            job_id=job.job_id, uid=job.uid, user="alice" if job.uid == ALICE else "bob",
            name="nb", account="phys", partition="main", qos=job.qos, state=job.state,
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
