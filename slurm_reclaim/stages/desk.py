"""What every stage of the controller works with: the ports, the view and the living sessions.

Between two awaits nothing else runs, so a stage reads a session again after each await; one
session's steps and requests take turns by its lock.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.evidence import Evidence
from slurm_reclaim.model.history import History
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.lifecycle import Fact, State, follow
from slurm_reclaim.model.notice import Delivery
from slurm_reclaim.model.order import Order
from slurm_reclaim.model.sample import Sample
from slurm_reclaim.model.session import Session
from slurm_reclaim.policy.terms import Terms
from slurm_reclaim.ports import Clock, Hosts, Journal, NodeNames, Notifier, Scheduler
from slurm_reclaim.stages.living import Living
from slurm_reclaim.stages.orders import OrderBook
from slurm_reclaim.stages.settings import Settings
from slurm_reclaim.stages.view import Shelf, View

log = logging.getLogger("slurm_reclaim.session")


@dataclass
class Telling:
    """A notice on its way: what came back so far, and how many answers are still out."""

    deliveries: list[Delivery] = field(default_factory=list)
    waiting: int = 0
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a notice that nothing follows from. `of`: None where it was for the admins."""

    of: SessionId | None
    kind: str
    notice: str
    deliveries: tuple[Delivery, ...]


Details = dict[str, "str | int | float | list[str]"]


@dataclass
class Desk:
    """`touched`: when Slurm was last told something about a session's job; a row older than that
    says nothing. `kept`: what a held job was last given, see hold.py. `evidence` and `terms`: what
    sessions are judged by, see judge.py; `history` and `brake`: see limits in policy/; `tellings`:
    notices on their way, `told`: what became of others, see tell.py; `recorder` is given all
    samples; `shelf`: the store, see shelf.py. `hosts` and `refused`: see origin.py."""

    scheduler: Scheduler
    journal: Journal
    clock: Clock
    names: NodeNames
    settings: Settings
    view: View
    orders: OrderBook = field(default_factory=OrderBook)
    sessions: Living = field(default_factory=Living)
    touched: dict[SessionId, float] = field(default_factory=dict)
    kept: dict[SessionId, Any] = field(default_factory=dict)
    notifier: Notifier | None = None
    evidence: dict[SessionId, Evidence] = field(default_factory=dict)
    terms: dict[SessionId, tuple[float, Config, Terms]] = field(default_factory=dict)
    history: History = field(default_factory=History)
    brake: str = ""
    tellings: dict[str, Telling] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    recorder: Callable[[Session, Sequence[Sample]], None] | None = None
    shelf: Shelf = field(default_factory=Shelf)
    hosts: Hosts | None = None
    refused: dict[str, str] = field(default_factory=dict)
    _locks: WeakValueDictionary[SessionId, asyncio.Lock] = field(
        default_factory=WeakValueDictionary
    )
    _said: dict[SessionId, dict[str, str]] = field(default_factory=dict)

    def lock(self, id: SessionId) -> asyncio.Lock:
        """It lives as long as somebody has it or waits for it."""
        return self._locks.setdefault(id, asyncio.Lock())

    def of_job(self, job_id: int) -> Iterator[Session]:
        return self.sessions.of_job(job_id)

    # -- what was seen ------------------------------------------------------------------------

    def open(self, session: Session, kind: str) -> Session:
        """A session comes under our care."""
        self.journal.open_session(session, self._event(session, kind, session.reason, "", {}))
        self.sessions[session.id] = session
        self._log(session, kind, session.reason)
        return session

    def apply(
        self, id: SessionId, fact: Fact, reason: str, details: Details | None = None, **change: Any
    ) -> Session:
        """The one way from one state to another. Raises IllegalTransition."""
        before, reason = self.sessions[id], _line(reason)
        after = replace(
            before,
            state=follow(before.state, fact),
            reason=reason,
            since=self.clock.now(),
            **change,
        )
        event = self._event(after, fact.value, reason, before.state.value, details or {})
        self.journal.apply(after, fact, event)
        self.history.add(event)
        self._drop_telling(before, after)
        if after.state is State.ENDED:
            self._forget(after)
        else:
            self.sessions[id] = after
        if fact is Fact.RESTORE_SUCCEEDED:
            # A fresh start: what was measured before says nothing of this life.
            self.evidence.pop(id, None)
        self._log(after, fact.value, reason)
        return after

    def update(self, id: SessionId, **change: Any) -> Session:
        """Details that are no transition; stored only where something differs."""
        if "reason" in change:
            change["reason"] = _line(change["reason"])
        after = replace(self.sessions[id], **change)
        if after != self.sessions[id]:
            self.journal.update(after)
            self._drop_telling(self.sessions[id], after)
            self.sessions[id] = after
        return after

    def note(
        self,
        id: SessionId,
        kind: str,
        reason: str,
        details: Details | None = None,
        *,
        about: str = "",
    ) -> None:
        """An event that changes no state; not said again while the reason stays the same, or what
        it is `about`, where its words are in a user's hands."""
        reason = _line(reason)
        session = self.sessions[id]
        said = self._said.setdefault(id, {})
        if said.get(kind) == (about or reason):
            return
        said[kind] = about or reason
        state = session.state.value
        self.journal.note(self._event(session, kind, reason, state, details or {}))
        self._log(session, kind, reason)

    def note_all(self, kind: str, reason: str) -> None:
        """An event of no session."""
        self.journal.note(Event(at=self.clock.now(), kind=kind, reason=_line(reason)))
        log.warning("%s: %s", kind, reason)

    def touch(self, id: SessionId) -> None:
        if id in self.sessions:
            self.touched[id] = self.clock.now()

    # -- intents ------------------------------------------------------------------------------

    def settle(self, id: SessionId, what: str, outcome: str) -> None:
        """Close the session's open intents of this kind (S7)."""
        for number, _, kind, _ in self.journal.unsettled(id):
            if kind == what:
                self.journal.settle(number, outcome)

    def intend(self, session: Session, order: Order) -> int:
        """Journal an order that is to be given to the session's agent; the intent's number."""
        text = json.dumps({"node": session.node, "order": asdict(order)})
        return self.journal.intend(session.id, order.verb.value, text)

    def give(self, session: Session, order: Order) -> None:
        """Order something that changes nothing on the session: intent and order (S7)."""
        self.orders.give(session.node, self.intend(session, order), order)

    def drop_orders(self, id: SessionId, outcome: str) -> None:
        """No agent shall carry out what was ordered for this session any more."""
        while (order := self.orders.of_session(str(id))) is not None:
            intent = self.orders.take_back(order.id)
            if intent is not None:
                self.journal.settle(intent, outcome)

    # -----------------------------------------------------------------------------------------

    def _drop_telling(self, before: Session, after: Session) -> None:
        """With a warning that is over goes what is still on its way."""
        warned = before.warned
        if warned is not None and (after.warned is None or after.warned.id != warned.id):
            self.tellings.pop(warned.id, None)

    def _forget(self, ended: Session) -> None:
        id = ended.id
        self.drop_orders(id, "the session ended")
        for number, *_ in self.journal.unsettled(id):
            self.journal.settle(number, "the session ended")
        for book in (
            self.sessions, self.touched, self.kept, self.evidence, self.terms, self._said
        ):  # fmt: skip
            book.pop(id, None)
        if ended.warned is not None:
            self.tellings.pop(ended.warned.id, None)

    def _event(
        self, session: Session, kind: str, reason: str, before: str, details: Details
    ) -> Event:
        if session.array_task is not None:
            details = {**details, "task": session.job}
        return Event(
            at=self.clock.now(),
            kind=kind,
            reason=reason,
            session=str(session.id),
            job_id=session.id.job_id,
            uid=session.id.uid,
            node=session.node,
            before=before,
            after=session.state.value,
            details=details,
        )

    def _log(self, session: Session, kind: str, reason: str) -> None:
        log.info(
            "%s %s: %s session=%s job=%s node=%s restarts=%d",
            kind, session.state, reason, session.id, session.job, session.node or "-",
            session.restarts,
        )  # fmt: skip


def _line(reason: str) -> str:
    """One line, whatever programs said: it goes into tables, logs and Slurm's comments."""
    return " ".join(reason.split())
