"""What is known of the world right now: Slurm's last answer, the agents' last reports, and the
store as one of them last told it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_reclaim.model.catalogue import Errand, StoredSession
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.job import Job, Node
from slurm_reclaim.model.order import NodeFacts, Report, Result, SessionReport
from slurm_reclaim.model.session import Session

NODES_EVERY = 60.0  # seconds that an answer about the cluster's nodes is believed
MEMO_HOLDS = 1.0  # seconds
STRANGERS_EVERY = 5.0  # seconds that it is believed of a node that it does not name
_PAUSE = 20.0  # seconds; a longer one may have made an agent count as silent


@dataclass(frozen=True, slots=True)
class Heard:
    """An agent's last report; `at` Unix seconds of the controller's own clock; `since` when the
    first report of the node's same boot came, with none of another boot in between."""

    report: Report
    at: float
    since: float = math.inf


@dataclass
class Shelf:
    """The catalogue as it was last told in full: `sessions` by name, `at` Unix seconds of the
    controller's clock when it was asked for (0: never), `node` who told it, `ahead` seconds that
    the agent's clock was ahead of ours. `wanted`: orders whose answers are waited for."""

    sessions: dict[str, StoredSession] = field(default_factory=dict)
    at: float = 0.0
    node: str = ""
    ahead: float = 0.0
    wanted: dict[str, asyncio.Future[Result]] = field(default_factory=dict)
    errands: dict[str, Errand] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    told: dict[str, float] = field(default_factory=dict)
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class View:
    """`asked`: when the last query that was answered began (0: none was yet). `started`: since
    when reports are listened to, which is how long a silence may be told from our own absence.
    `nodes`: as Slurm last told them; whether a node can be used now is known from its agent's
    reports."""

    started: float
    asked: float = 0.0
    problem: str = ""
    jobs: Mapping[int, Job] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    agents: dict[str, Heard] = field(default_factory=dict)
    _memo: dict[object, object] = field(default_factory=dict)
    _memo_of: float = 0.0
    _changed: bool = False
    _counted: float = 0.0
    _strangers: set[str] = field(default_factory=set)
    _of_job: dict[tuple[int, int], dict[str, list[SessionReport]]] = field(default_factory=dict)

    def answered(self, asked: float, jobs: Sequence[Job]) -> None:
        self.asked, self.problem = asked, ""
        self.jobs = {job.job_id: job for job in jobs}
        self._changed = True
        self._memo_of = 0.0

    def recall(self, now: float) -> dict[object, object]:
        """What was worked out from nodes and agents since either has changed. Of ten thousand
        nodes one changes every moment: then what was worked out holds for MEMO_HOLDS."""
        if self._changed and not 0 <= now - self._memo_of < MEMO_HOLDS:
            self._memo, self._memo_of, self._changed = {}, now, False
        return self._memo

    def wants_nodes(self, now: float) -> bool:
        """Whether Slurm is to be asked for its nodes: the last answer is old (or from a time that
        the clock went back behind), or an agent reports from a node that it did not name."""
        if not self._counted <= now < self._counted + NODES_EVERY:
            return True
        return not self.agents.keys() <= self.nodes.keys() | self._strangers

    def counted(self, asked: float, nodes: Sequence[Node]) -> None:
        """Slurm's answer. An agent on a host that Slurm does not know is asked about once."""
        self._counted = asked
        self.nodes = {node.name: node for node in nodes}
        self._strangers = self.agents.keys() - self.nodes.keys()

    def stranger(self, now: float) -> None:
        """An agent speaks from a node that Slurm did not name: it may have been added since."""
        if now - self._counted >= STRANGERS_EVERY:
            self.doubt_nodes()

    def doubt_nodes(self) -> None:
        """A node may be gone: ask before anything else is said of nodes."""
        self._counted = 0.0

    def heard(self, report: Report, at: float) -> None:
        before = self.agents.get(report.node)
        if (
            before is None
            or at - before.at > _PAUSE
            or not _alike(before.report.facts, report.facts)
        ):
            self._changed = True
        same_boot = before is not None and before.report.boot_id == report.boot_id
        since = before.since if before is not None and same_boot else at
        self.agents[report.node] = Heard(report, at, since)
        for told in before.report.sessions if before is not None else ():
            known = self._of_job.get((told.job_id, told.uid), {})
            known.pop(report.node, None)
            if not known:
                self._of_job.pop((told.job_id, told.uid), None)
        for told in report.sessions:
            of_job = self._of_job.setdefault((told.job_id, told.uid), {})
            of_job.setdefault(report.node, []).append(told)

    def fresh(self, node: str, now: float, silent_after: float) -> Heard | None:
        """The node's last report, None where its agent is silent."""
        heard = self.agents.get(node)
        return heard if heard is not None and now - heard.at <= silent_after else None

    def reports_of(self, session: Session) -> Iterator[tuple[str, Heard, SessionReport]]:
        """What agents last said of any incarnation of this session."""
        of_job = self._of_job.get((session.id.job_id, session.id.uid), {})
        return ((node, self.agents[node], told) for node, some in of_job.items() for told in some)

    def report_of(self, session: Session) -> tuple[str, Heard, SessionReport] | None:
        """What its node's agent last said of the incarnation that the session's state speaks of.
        Another node's word of it is none, whatever it says."""
        found = [
            f
            for f in self.reports_of(session)
            if f[2].restarts == session.restarts and f[0] == (session.node or f[0])
        ]
        return max(found, key=lambda f: f[1].at, default=None)


def _alike(one: NodeFacts, other: NodeFacts) -> bool:
    """But for the room in the store, which is never the same for long."""
    return one == other or replace(one, store_free=other.store_free) == other


def same_job(id: SessionId, restarts: int, job: Job) -> bool:
    """Whether this row is the session's job, in the incarnation `restarts` or a later one. Job ids
    are reused: a job that was never requeued was first submitted when it says it was."""
    return job.restarts >= restarts and _its_own(id, job)


def counted(session: Session, job: Job) -> Job:
    """The row with the restart count as we count: with the runs that Slurm has forgotten."""
    if not session.set_back or not _its_own(session.id, job):
        return job
    return replace(job, restarts=job.restarts + session.set_back)


def set_back(session: Session, job: Job) -> int:
    """How many runs Slurm has forgotten of this job: a slurmctld that died before it had saved its
    state shows an earlier one. 0 where it shows what we know, or another job: that was submitted
    after the last thing that happened to ours."""
    if not _its_own(session.id, job) or job.submitted > session.since:
        return 0
    return max(0, session.restarts - job.restarts)


def _its_own(id: SessionId, job: Job) -> bool:
    if job.uid != id.uid or job.submitted < id.submitted:
        return False
    return job.restarts > 0 or job.submitted == id.submitted
