"""A controller standing in the world of world.py, with a real journal, that may be killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from sqlalchemy import Engine

from slurm_reclaim.adapters.journal import tables
from slurm_reclaim.adapters.journal.journal import SqlJournal
from slurm_reclaim.adapters.slurm.nodeset import NodeSetNames
from slurm_reclaim.daemon.controller import Controller
from slurm_reclaim.daemon.recovery import recover
from slurm_reclaim.errors import ReclaimError
from slurm_reclaim.model.caller import Caller
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.notice import Channel, Delivery, Notice
from slurm_reclaim.model.order import Living
from slurm_reclaim.model.session import Session
from slurm_reclaim.ports import Clock
from slurm_reclaim.stages import expire, observe, requests, start
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.settings import Settings
from slurm_reclaim.stages.view import View
from tests.unit.controller.simulated import ALICE
from tests.unit.controller.world import Crash, World

WRITES = (
    "open_session", "apply", "update", "note", "intend", "settle", "remember", "keep_evidence",
    "pin", "unpin", "announce",
)  # fmt: skip


class CrashingJournal:
    """The real one; every write is a place where the controller may die."""

    def __init__(self, journal: SqlJournal, world: World) -> None:
        self._journal = journal
        self._world = world

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._journal, name)
        if name not in WRITES:
            return method

        def write(*words: Any, **named: Any) -> Any:
            with self._world.effect(f"journal.{name}"):
                return method(*words, **named)

        return write


class Post:
    """Stands for mail and its like: keeps what it was given; `refuses` says why nothing arrives."""

    def __init__(self) -> None:
        self.sent: list[Notice] = []
        self.refuses = ""

    async def deliver(self, notice: Notice, only: Collection[str] = ()) -> list[Delivery]:
        if only and Channel.MAIL.value not in only:
            return []
        self.sent.append(notice)
        return [Delivery(Channel.MAIL, ok=not self.refuses, to=notice.user, error=self.refuses)]

    def text(self, notice: Notice) -> str:
        return f"{notice.kind.value} {notice.job}"

    def kinds(self) -> list[str]:
        return [notice.kind.value for notice in self.sent]


class Stand:
    """`alice` and friends are callers. A Crash anywhere makes a new controller on the journal."""

    alice = Caller(ALICE, "alice")
    root = Caller(0, "root")
    olga = Caller(3000, "olga")
    bob = Caller(2002, "bob")

    def __init__(self, world: World, engine: Engine, **settings: Any) -> None:
        self.world = world
        self._engine = engine
        self._settings = Settings("lab", **settings)
        self.post = Post()
        self.crashes = 0
        self._boot()

    def _boot(self) -> None:
        self.journal = SqlJournal(self._engine)
        self.desk = Desk(
            scheduler=self.world,
            journal=CrashingJournal(self.journal, self.world),
            clock=self.clock(),
            names=NodeSetNames(),
            settings=self._settings,
            notifier=self.post,
            # Long enough up for silence to mean something.
            view=View(started=self.world.now() - 1000),
        )
        recover(self.desk)
        self.controller = Controller(self.desk)

    def clock(self) -> Clock:
        return self.world

    async def reboot(self) -> None:
        await self.controller.stop()
        self.journal.close()
        self.crashes += 1
        self.world.crash_at = None
        self._boot()

    async def surviving(self, act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """The outcome of `act`, None where the controller died of it."""
        try:
            outcome = await act()
            await self._steps_done()
            return outcome
        except Crash:
            await self.reboot()
            return None

    async def _steps_done(self) -> None:
        controller = self.controller
        while tasks := list(controller._tasks.values()):
            for task in tasks:
                await task

    async def turn(self, seconds: float = 10.0) -> None:
        """Slurm and the nodes go on, agents report and obey, the controller has a cycle."""
        self.world.tick(seconds)
        await self.surviving(self.controller.cycle)
        for agent in self.world.agents.values():
            if agent.up:
                await self.surviving(lambda agent=agent: self.agent_turn(agent))
        await self.surviving(self.controller.cycle)

    async def agent_turn(self, agent: Any) -> None:
        world = self.world
        for order in self.desk.orders.of_node(agent.node, agent.results):
            world.obey(agent, order)
        for tree in list(agent.trees.values()):
            if tree.living is Living.WAITING:
                answer = await start.answer(self.desk, world.question(agent, tree))
                world.restore(agent, tree, answer)
        world.heard(agent, observe.take_report(self.desk, world.report(agent)))
        self.controller.wake_node(agent.node)

    async def turns(self, many: int, seconds: float = 10.0) -> None:
        for _ in range(many):
            await self.turn(seconds)

    async def until(self, state: State, most: int = 30) -> Session:
        for _ in range(most):
            session = self.session()
            if session is not None and session.state is state:
                return session
            await self.turn()
        raise AssertionError(f"{self.session()} did not become {state}: {self.world.history}")

    def session(self) -> Session | None:
        """The newest session of the journal, as a reader after a power failure would find it."""
        every = [*self.journal.sessions(), *self.journal.ended()]
        return max(every, key=lambda s: s.since, default=None)

    async def look_through(self, seconds: float = 1.0) -> Any:
        """One pass of retention, while the world goes on."""

        async def passing() -> Any:
            await self.turn(seconds)  # however long it was, agents have reported
            task, lives = asyncio.ensure_future(expire.cycle(self.desk)), self.crashes
            while not task.done():
                await self.turn(seconds)
                await asyncio.sleep(0)
                if self.crashes > lives:
                    task.cancel()  # it died with its controller
                    return None
            return task.result()

        return await self.surviving(passing)

    async def hibernate(self, who: Caller | None = None, job: str = "7") -> Session:
        who = who or self.alice
        return await self.surviving(lambda: requests.ask_hibernate(self.desk, who, job, "asked"))

    async def restore(self, who: Caller | None = None, job: str = "7") -> Session:
        who = who or self.alice
        return await self.surviving(lambda: requests.ask_restore(self.desk, who, job))

    def kinds(self) -> list[str]:
        return [event.kind for event in self.journal.events(limit=1000)]


def emptied(engine: Engine) -> Engine:
    """For the next life: no row of an earlier one, and no connection of it."""
    engine.dispose()
    names = [table.name for table in tables.metadata.sorted_tables if table is not tables.meta]
    script = "".join(f"DELETE FROM {name};" for name in names)
    raw = engine.raw_connection()
    raw.executescript(f"BEGIN;{script}DELETE FROM meta WHERE name != 'schema';COMMIT")
    raw.close()
    return engine


async def refused(asking: Coroutine[Any, Any, Any]) -> ReclaimError:
    try:
        await asking
    except ReclaimError as error:
        return error
    raise AssertionError("it was not refused")
