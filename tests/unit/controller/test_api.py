"""The paths of docs/protocol.md, asked by the real client of a controller in the small world."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.adapters.transport.server import Server
from slurm_reclaim.config.schema import Config, Controller
from slurm_reclaim.daemon.routes import Routes
from slurm_reclaim.errors import BadRequest, NotPermitted
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Order, ReportReply, StartAnswer, StartMode
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.status import Status
from tests.unit.controller.simulated import ALICE
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World
from tests.unit.transport.standin import StandInMunge, StandInMunged


class Api:
    def __init__(self, stand: Stand) -> None:
        self.munged = StandInMunged()
        self.config = Config(controller=Controller(host="127.0.0.1", port=unused_port()))
        self.server = Server("127.0.0.1", StandInMunge(self.munged, 0))
        Routes(stand.controller, lambda: self.config).add_to(self.server)

    def of(self, uid: int) -> ControllerClient:
        return ControllerClient(self.config, StandInMunge(self.munged, uid))


@pytest.fixture
async def api(stand: Stand) -> AsyncIterator[Api]:
    api = Api(stand)
    runner = web.AppRunner(api.server.app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", api.config.controller.port).start()
    yield api
    await runner.cleanup()


async def test_only_operators_give_a_checkpoint_up(api: Api, stand: Stand) -> None:
    body = {"checkpoint": "7/0", "start_over": True}
    async with api.of(ALICE) as alice:
        with pytest.raises(NotPermitted, match="give up a checkpoint"):
            await alice.post("/v1/checkpoints/abandon", body, Session)
        with pytest.raises(BadRequest, match="there is no 'abandn'"):
            await alice.post("/v1/checkpoints/abandn", body, Session)


async def test_the_owners_way(api: Api, stand: Stand, world: World) -> None:
    async with api.of(ALICE) as alice:
        (listed,) = await alice.get("/v1/sessions?all=0", list[Session])
        assert listed == stand.session()
        asked = await alice.post("/v1/sessions/7/hibernate", {"reason": "lunch"}, Session)
        assert (asked.state, asked.reason) == (State.HIBERNATING, "lunch")
        await stand.until(State.HIBERNATED)
        assert (await alice.post("/v1/sessions/7/restore", {}, Session)).state is State.QUEUED
        await stand.until(State.ACTIVE)
        events = await alice.get("/v1/events?job=7&after=0&limit=3", list[Event])
        assert [e.kind for e in events] == ["released", "job-started", "restore-succeeded"]
        after = events[0].seq
        later = await alice.get(f"/v1/events?job=7&after={after}&limit=9", list[Event])
        assert later == events[1:]


async def test_the_agents_way(api: Api, stand: Stand, world: World) -> None:
    agent = world.agents["n1"]
    async with api.of(0) as root:
        waiting = asyncio.create_task(
            root.post("/v1/agent/orders", {"node": "n1", "wait": 5.0, "known": []}, list[Order])
        )
        await asyncio.sleep(0.01)
        await stand.hibernate()
        (order,) = await waiting
        world.obey(agent, order)
        reply = await root.post("/v1/agent/report", world.report(agent), ReportReply)
        assert reply.acknowledged == (order.id,)
        await stand.until(State.HIBERNATED)
        question = world.question(agent, type("T", (), {"job_id": 7, "uid": ALICE})())
        answer = await root.post("/v1/agent/start", question, StartAnswer)
        assert answer.mode is StartMode.WAIT


async def test_only_agents_may_speak_for_nodes(api: Api, world: World) -> None:
    async with api.of(ALICE) as alice:
        for path in ("report", "orders", "start"):
            with pytest.raises(NotPermitted):
                await alice.post(f"/v1/agent/{path}", {}, dict)


async def test_status_shows_nodes_to_root_only(api: Api, stand: Stand) -> None:
    async with api.of(ALICE) as alice, api.of(0) as root:
        mine = await alice.get("/v1/status", Status)
        full = await root.get("/v1/status", Status)
    assert (mine.nodes, mine.sessions, mine.cluster) == ((), {"ACTIVE": 1}, "lab")
    assert [(n.name, n.states, n.sessions) for n in full.nodes] == [
        ("n1", ("idle",), 1),
        ("n2", ("idle",), 0),
    ]


@pytest.mark.parametrize(
    "path",
    ["/v1/sessions/x", "/v1/sessions/7.0", "/v1/events?limit=x", "/v1/events?after=-1", "/v2"],
)
async def test_malformed_requests(api: Api, path: str) -> None:
    async with api.of(ALICE) as alice:
        with pytest.raises(BadRequest):
            await alice.get(path, dict)


async def test_a_body_of_another_shape(api: Api) -> None:
    async with api.of(0) as root:
        for body in ([], {"node": 5}, {"reason": 7}):
            with pytest.raises(BadRequest):
                await root.post("/v1/agent/report", body, dict)
        with pytest.raises(BadRequest):
            await root.post("/v1/sessions/7/hibernate", {"reason": 7}, Session)
