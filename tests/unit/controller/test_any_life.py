"""Any order of what owners, Slurm, nodes and crashes do: whatever came, once the world is well
the session is there, unless its owner ended it. World itself fails on S1, S3 and S10.

RECLAIM_LIVES says how many random lives are tried; without it the same few each time.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import Engine

from slurm_reclaim.adapters.journal.engine import open_engine
from slurm_reclaim.errors import ReclaimError
from slurm_reclaim.model.lifecycle import RUNNING_STATES, State
from slurm_reclaim.model.order import Outcome
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages import requests
from tests.unit.controller.simulated import SimJob
from tests.unit.controller.stand import Stand, emptied
from tests.unit.controller.world import World

MANY = int(os.environ.get("RECLAIM_LIVES", "0"))
# The order in which it came is told; making it shorter takes minutes.
PHASES = [Phase.explicit, Phase.generate]
NODES = st.sampled_from(["n1", "n2"])
engine: Engine


class AnyLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World()
        self.world.submit(7)
        self.stand = Stand(self.world, emptied(engine))
        self.over = False
        self.rows: dict[int, SimJob] = {}
        self.waited: SimJob | None = None
        self.run(self.stand.until(State.ACTIVE))

    def run(self, work: Awaitable[Any]) -> Any:
        try:
            return self.loop.run_until_complete(work)
        except ReclaimError:
            return None  # refused, or not answered: the owner is told

    @property
    def job(self) -> SimJob:
        return self.world.jobs_by_id[7]

    def session(self) -> Session:
        session = self.stand.session()
        assert session is not None
        return session

    # -- owners and time ----------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1.0, 10.0, 60.0]), many=st.integers(1, 4))
    def time_passes(self, seconds: float, many: int) -> None:
        self.run(self.stand.turns(many, seconds))

    @rule(turns=st.integers(0, 4))
    def is_hibernated(self, turns: int) -> None:
        self.run(self.stand.hibernate())
        self.run(self.stand.turns(turns))

    @rule(turns=st.integers(0, 4))
    def is_restored(self, turns: int) -> None:
        self.run(self.stand.restore())
        self.run(self.stand.turns(turns))

    @rule()
    def has_another_life(self) -> None:
        """All the way, where nothing stands in it."""
        for state, ask in ((State.HIBERNATED, self.stand.hibernate),
                           (State.ACTIVE, self.stand.restore)):  # fmt: skip
            self.run(ask())
            for _ in range(6):
                if self.session().state is not state:
                    self.run(self.stand.turn())

    @rule()
    def is_kept(self) -> None:
        self.run(self.stand.surviving(self._keep))

    async def _keep(self) -> None:
        await requests.keep(self.stand.desk, self.stand.alice, "7", 600.0)

    @rule()
    def is_released_by_hand(self) -> None:
        if self.job.held:
            self.job.held, self.job.state = False, "PENDING"

    @precondition(lambda self: self.job.state == "RUNNING")
    @rule(held=st.booleans())
    def is_requeued_by_hand(self, held: bool) -> None:
        """The owner's own word: what ran since the last checkpoint is theirs to give up."""
        self.job.completing_to = "SPECIAL_EXIT" if held else "PENDING"
        self.job.held, self.job.state = held, "COMPLETING"
        self.over = self.over or not self.world.images

    @precondition(lambda self: self.job.state in ("RUNNING", "PENDING", "SPECIAL_EXIT"))
    @rule(really=st.integers(0, 9))
    def is_cancelled(self, really: int) -> None:
        if really == 0:
            self.world.finish(7, "CANCELLED")
            self.over = True

    # -- Slurm, nodes and agents ----------------------------------------------------------------

    @rule(turns=st.integers(1, 4))
    def slurm_is_silent(self, turns: int) -> None:
        self.world.silent = True
        self.run(self.stand.turns(turns))
        self.world.silent = False

    @precondition(lambda self: self.job.restarts - 1 in self.rows)
    @rule()
    def slurm_goes_back_to_the_run_before(self) -> None:
        """As after a crash of slurmctld; only to one in which the job runs where it runs."""
        if self.job.state == "RUNNING":
            back = self.rows.pop(self.job.restarts - 1)
            self.rows.pop(self.job.restarts, None)
            self.world.jobs_by_id[7] = replace(back, node=self.job.node)

    @precondition(lambda self: self.waited is not None and self.job.state == "RUNNING")
    @rule()
    def slurm_goes_back_to_before_the_start(self) -> None:
        """The node registers, and slurmctld has what it does not know ended there."""
        if self.waited and self.waited.restarts == self.job.restarts and self.job.restarts:
            self.world.agents[self.job.node].trees.clear()
            self.world.jobs_by_id[7] = replace(self.waited)

    @rule()
    def an_operator_clears_excluded_nodes(self) -> None:
        self.job.excluded = ""

    @rule(name=NODES, turns=st.integers(1, 8))
    def agent_is_away(self, name: str, turns: int) -> None:
        agent = self.world.agents[name]
        was, agent.up = agent.up, False
        self.run(self.stand.turns(turns))
        agent.up = was or self.world.agents[name] is not agent

    @precondition(lambda self: "down" in " ".join(map(str, self.world.node_states.values())))
    @rule(name=NODES)
    def cut_off_node_is_seen_again(self, name: str) -> None:
        """Its network was away, and what ran there runs still, until slurmd ends it."""
        self.world.agents[name].up = True
        self.run(self.stand.turn())
        self.node_comes_back(name)

    @rule(name=NODES)
    def node_is_lost(self, name: str) -> None:
        if self.job.node == name and not self.world.images:
            self.over = True  # nothing was ever saved: Slurm starts it over, whoever lives there
            self.world.agents[name].trees.clear()
        self.world.lose_node(name)

    @rule(name=NODES)
    def node_comes_back(self, name: str) -> None:
        """slurmd ends what it finds of older runs."""
        if "down" in self.world.node_states[name]:
            self.world.boot_unseen(name)
            self.world.node_states[name] = frozenset({"idle"})

    @rule(name=NODES)
    def node_is_booted_before_slurm_has_noticed(self, name: str) -> None:
        """Nobody but the controller tells Slurm here that the job does not run."""
        up = self.world.agents[name].up
        self.over = self.over or (self.job.node == name and not self.world.images)
        self.world.boot_unseen(name)
        self.world.agents[name].up = up

    @rule(name=NODES, how=st.sampled_from([Outcome.DONE, Outcome.FAILED, Outcome.CANCELLED]))
    def dumps_end(self, name: str, how: Outcome) -> None:
        self.world.agents[name].hibernate = how

    @rule(name=NODES, why=st.sampled_from(["", "sim: no"]))
    def restores_fail(self, name: str, why: str) -> None:
        self.world.agents[name].restore_fails = why

    @rule(why=st.sampled_from(["", "sim: not allowed"]))
    def requeues_are_refused(self, why: str) -> None:
        self.world.refuse_requeue = why

    @rule(calls=st.integers(0, 12), when=st.sampled_from(["before", "after"]))
    def the_controller_will_die(self, calls: int, when: str) -> None:
        self.world.crash_at = (len(self.world.calls) + calls, when)

    # -- what must be true ----------------------------------------------------------------------

    @invariant()
    def lives_once(self) -> None:
        self.world._check_s3(self.job)
        if self.job.state == "RUNNING":
            self.rows[self.job.restarts] = replace(self.job)
        elif self.job.state != "COMPLETING":
            self.waited = replace(self.job)

    @invariant()
    def has_not_ended_by_itself(self) -> None:
        assert self.over or self.session().state is not State.ENDED, self.told()

    def told(self) -> str:
        events = self.stand.journal.events(limit=1000)
        lines = [f"{e.kind}: {e.reason}" for e in events]
        return "\n".join([*lines, str(self.job), *self.world.history])

    def teardown(self) -> None:
        world = self.world
        world.silent, world.refuse_requeue = False, ""
        for name in world.agents:
            self.node_comes_back(name)
            agent = world.agents[name]
            agent.up, agent.hibernate, agent.restore_fails = True, Outcome.DONE, ""
        if not self.over:
            self.loop.run_until_complete(self._comes_back())
        self.loop.run_until_complete(self.stand.controller.stop())
        self.loop.close()

    async def _comes_back(self) -> None:
        for _ in range(60):
            state = self.session().state
            if state in RUNNING_STATES and len(self.living()) == 1:
                return
            if state is State.FAILED:  # Slurm took nothing back: the image is kept, admins know
                assert self.world.images, self.told()
                return
            try:
                if state is State.HIBERNATED:
                    await self.stand.restore()
            except ReclaimError:
                pass
            await self.stand.turn(20.0)
        raise AssertionError(f"on {self.living()} {self.told()}")

    def living(self) -> list[str]:
        """Where it runs."""
        return [a.node for a in self.world.agents.values() if self.world._tree(a, self.job)]


@pytest.fixture(scope="module", autouse=True)
def one_journal() -> Any:
    global engine
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        engine = open_engine("", str(Path(folder)))
        yield
        engine.dispose()


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(
    max_examples=MANY or 20,
    phases=PHASES,
    stateful_step_count=30,
    derandomize=not MANY,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
