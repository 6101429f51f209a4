"""The store as the controller knows it: through agents that have it, since it need not mount it.

Orders about the store name no session and are not repeated after a restart: what was deleted is
gone, what was not is found again by the next look.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import asdict

from slurm_reclaim.errors import AgentUnavailable, OperationFailed, Refused, StoreUnavailable
from slurm_reclaim.model.catalogue import StoreAnswer, StoredSession, StoreTask
from slurm_reclaim.model.ids import parse_session_id
from slurm_reclaim.model.order import STORE_VERBS, Order, Outcome, Result, Verb
from slurm_reclaim.stages import uploads
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.view import Shelf

# An agent that is heard of and does not answer within this many seconds is given up.
PATIENCE = 120.0
LONG = 6 * 3600.0  # seconds; to read a large checkpoint again
_LOOK = 2.0  # seconds between two looks whether the agent is still there
_MOST_PAGES = 1000


def chosen(desk: Desk) -> str:
    """The agent that is asked: the least busy that has the store; the same one again where all are
    alike. Raises AgentUnavailable."""
    now, silent_after = desk.clock.now(), desk.settings.silent_after
    fresh = [
        (len(heard.report.sessions), name, heard.report.facts)
        for name in desk.view.agents
        if (heard := desk.view.fresh(name, now, silent_after)) is not None
        and heard.report.facts.store_ok
    ]
    found = [(count, name) for count, name, facts in fresh if facts.store_orders]
    if fresh and not found and (remote := desk.settings.config.store.remote):
        raise AgentUnavailable(
            f"no agent can use {remote} now", hint="see on a node, as root: reclaim check"
        )
    if not found:
        raise AgentUnavailable(
            "no agent that has the checkpoint store is heard of",
            hint="is the store mounted on a node whose reclaim-agent runs? see: reclaim check",
        )
    return min(found)[1]


async def refresh(desk: Desk, age: float = 0.0) -> Shelf:
    """Look through the store, unless that was done within the last `age` seconds. Raises
    AgentUnavailable, StoreUnavailable, OperationFailed; the old catalogue stays then."""
    shelf = desk.shelf
    asked = desk.clock.now()
    async with shelf.looking:
        if shelf.at >= asked - age:
            return shelf  # perhaps somebody else looked while we waited
        at, node, after = desk.clock.now(), chosen(desk), ""
        found: list[StoredSession] = []
        # Before and after: what is uploaded between the two is in neither of them.
        waits = uploads.waiting(desk)
        for _ in range(_MOST_PAGES):
            result = await ask(desk, Verb.CATALOGUE, StoreTask(after=after), "", node=node)
            answer = result.store or StoreAnswer()
            found += answer.sessions
            after = answer.after
            if not after:
                break
        shelf.sessions = uploads.with_waiting(found, waits | uploads.waiting(desk))
        shelf.at, shelf.node = at, node
        shelf.ahead = result.at - desk.clock.now()
    return shelf


async def ask(
    desk: Desk, verb: Verb, task: StoreTask, reason: str, *, node: str = "", limit: float = PATIENCE
) -> Result:
    """Have an agent do it, and wait. Raises AgentUnavailable where it falls silent or takes longer
    than `limit` seconds, Refused, StoreUnavailable and OperationFailed with its own words."""
    node = node or chosen(desk)
    order = Order(secrets.token_hex(8), verb, "", 0, 0, reason, store=task)
    intent = 0
    if verb is Verb.EXPIRE:
        text = json.dumps({"node": node, "store": asdict(task), "reason": reason})
        intent = desk.journal.intend(parse_session_id(task.session), verb.value, text)
    answered = desk.shelf.wanted[order.id] = asyncio.get_running_loop().create_future()
    desk.orders.give(node, intent, order)
    try:
        result = await _answer(desk, node, answered, limit)
    finally:
        del desk.shelf.wanted[order.id]
        if desk.orders.take_back(order.id) is not None and intent:
            desk.journal.settle(intent, "not answered")
    if result.outcome is Outcome.REFUSED:
        raise Refused(result.reason)
    if result.store is not None and result.store.away:
        raise StoreUnavailable(result.reason)
    if result.outcome is not Outcome.DONE:
        raise OperationFailed(result.reason)
    return result


async def _answer(desk: Desk, node: str, answered: asyncio.Future[Result], limit: float) -> Result:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    while True:
        done, _ = await asyncio.wait({answered}, timeout=_LOOK)
        if done:
            return answered.result()
        heard = desk.view.fresh(node, desk.clock.now(), desk.settings.silent_after)
        if heard is None or loop.time() > deadline:
            raise AgentUnavailable(f"the agent on {node} does not answer")


def take(desk: Desk, result: Result) -> None:
    """An agent's answer; one that nobody waits for any more changes nothing."""
    assert result.verb in STORE_VERBS
    wanted = desk.shelf.wanted.get(result.order)
    if wanted is not None and not wanted.done():
        wanted.set_result(result)
    intent = desk.orders.take_back(result.order)
    if intent:
        desk.journal.settle(intent, f"{result.outcome.value}: {result.reason}")
