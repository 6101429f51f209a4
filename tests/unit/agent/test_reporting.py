"""A report's own time: what passes until the controller hears it is taken for a wrong clock."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon.agent import Agent
from slurm_reclaim.model.order import Living, NodeFacts, ReportReply, SessionReport


async def test_it_is_when_everything_was_gathered() -> None:
    gathered: list[float] = []
    sent: list[Any] = []

    def facts() -> NodeFacts:
        time.sleep(0.2)  # a store that answers slowly
        return NodeFacts()

    def reports() -> tuple[SessionReport, ...]:
        gathered.append(time.time())
        return (SessionReport(7, 2001, 0, Living.RUNNING),)

    async def post(path: str, body: Any, kind: Any) -> ReportReply:
        sent.append(body)
        return ReportReply()

    answered: list[set[int]] = []
    samples = SimpleNamespace(taken=answered.append)
    sessions: Any = SimpleNamespace(node="n1", events=[], reports=reports, samples=samples)
    orders: Any = SimpleNamespace(results={})
    controller: Any = SimpleNamespace(post=post)
    finder: Any = SimpleNamespace(facts=facts)
    agent = Agent(Config, sessions, orders, controller, finder, lambda: None)
    await agent._report()
    assert sent[0].at >= gathered[0]
    assert answered == [{7}]
