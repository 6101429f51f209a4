"""A report's own time: what passes until the controller hears it is taken for a wrong clock."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

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


@pytest.mark.parametrize("reason", ["the store hangs", "reports are seldom"])
async def test_an_agent_whose_report_is_long_in_coming_is_not_sick(
    reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """systemd would end it, and its dumps with it."""
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    config = replace(Config(), agent=Config().agent.__class__(interval=600, run=tmp_path))
    hangs, said = threading.Event(), []

    def facts() -> NodeFacts:
        if reason == "the store hangs":
            hangs.wait(30)
        return NodeFacts()

    async def post(path: str, body: Any, kind: Any, timeout: float = 0.0) -> Any:
        if "orders" in path:
            await asyncio.sleep(60)
        return ReportReply()

    samples = SimpleNamespace(taken=lambda jobs: None, take=lambda known, busy: None)
    sessions: Any = SimpleNamespace(
        node="n1", events=[], reports=tuple, samples=samples, sessions={}, busy=set(),
        changed=asyncio.Event(), sweep=lambda: None,
    )  # fmt: skip
    orders: Any = SimpleNamespace(results={}, known=list)
    controller: Any = SimpleNamespace(post=post)
    finder: Any = SimpleNamespace(facts=facts)
    alive = partial(said.append, 1)
    agent = Agent(lambda: config, sessions, orders, controller, finder, alive)
    running = asyncio.create_task(agent.run())
    await asyncio.sleep(0.6)
    hangs.set()
    running.cancel()
    await asyncio.wait({running})
    await asyncio.to_thread(agent._aside.shutdown)
    assert len(said) >= 3
