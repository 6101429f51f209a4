"""What the nodes of the small world do: agents that obey, report and restore, and the store."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_reclaim.model.catalogue import (
    StoreAnswer,
    StoredCheckpoint,
    StoredSession,
    StoreTask,
)
from slurm_reclaim.model.ids import parse_session_id
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
from tests.unit.controller.simulated import Agent, SimJob, Tree


class BrokenRule(AssertionError):
    """An invariant does not hold."""


class Nodes:
    """Of World, which says what these are."""

    time: float
    agents: dict[str, Agent]
    jobs_by_id: dict[int, SimJob]
    images: dict[tuple[int, int], dict[str, set[int]]]
    history: list[str]
    away: str
    uploads: dict[str, tuple[Upload, ...] | None]
    store_ahead: float
    tells_freed: bool

    def _check_s3(self, job: SimJob) -> None:
        raise NotImplementedError

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
