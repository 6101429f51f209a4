"""Root of one node has nothing to say of another node, nor of sessions that live there (S1)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.adapters.transport.hosts import Resolver
from slurm_reclaim.adapters.transport.server import Server
from slurm_reclaim.config.schema import Config, Controller
from slurm_reclaim.daemon.routes import Routes
from slurm_reclaim.errors import Unavailable, WrongNode
from slurm_reclaim.model.caller import Caller
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.lifecycle import Fact, State
from slurm_reclaim.model.order import Living, Order, ReportReply, Result, StartAnswer, Verb
from slurm_reclaim.model.order import Outcome as Out
from slurm_reclaim.stages import observe
from slurm_reclaim.stages.origin import see_origin
from tests.unit.controller.simulated import ALICE, BOB
from tests.unit.controller.stand import Stand
from tests.unit.controller.world import World
from tests.unit.transport.standin import StandInMunge, StandInMunged

N1, N2 = "192.0.2.11", "192.0.2.12"


@pytest.fixture
def placed(stand: Stand) -> Stand:
    """n1 and n2 have addresses, and this is what Slurm said of them."""
    desk = stand.desk
    desk.hosts = Resolver()
    at = {"n1": N1, "n2": N2}
    desk.view.nodes = {
        name: replace(node, hosts=(at[name],)) for name, node in desk.view.nodes.items()
    }
    return stand


def configured(stand: Stand, **keys: object) -> None:
    config = Config(controller=Controller(**keys))  # type: ignore[arg-type]
    stand.desk.settings = replace(stand.desk.settings, config=config)


def said(peer: str, signed_on: str = "") -> Caller:
    return Caller(0, "root", peer, signed_on)


@pytest.mark.parametrize("signed_on", [N1, ""])
async def test_a_node_speaks_for_itself(placed: Stand, signed_on: str) -> None:
    await see_origin(placed.desk, said(N1, signed_on), "n1")


@pytest.mark.parametrize(
    ("peer", "signed_on", "words"),
    [
        (N2, N2, f"came from {N2}"),
        (N2, N1, f"came from {N2}"),  # who has the MUNGE key writes what he likes
        (N1, N2, f"signed on {N2}"),  # by a connection that a user of n1 lends
        ("192.0.2.1", N1, "came from"),
        ("127.0.0.1", "", "came from"),
        ("", N1, "can't be seen"),
    ],
)
async def test_no_other_host_speaks_for_it(
    placed: Stand, peer: str, signed_on: str, words: str
) -> None:
    for _ in range(2):
        with pytest.raises(WrongNode, match=words):
            await see_origin(placed.desk, said(peer, signed_on), "n1")
    assert placed.kinds().count("wrong-node") == 1, "told once, not at every report"


async def test_names_that_nobody_knows_do_not_fill_the_journal(placed: Stand) -> None:
    with pytest.raises(WrongNode, match="knows no node"):
        await see_origin(placed.desk, said(N1), "n1; x")
    assert "wrong-node" not in placed.kinds()


async def test_slurm_is_asked_anew_of_a_node_that_it_did_not_name(placed: Stand) -> None:
    """It may have been added a moment ago; not at every word of one that is none."""
    view, now = placed.desk.view, placed.desk.clock.now()
    view.counted(now, list(view.nodes.values()))
    with pytest.raises(WrongNode):
        await see_origin(placed.desk, said("10.0.0.9"), "n9")
    assert not view.wants_nodes(now)
    view.counted(now - 6.0, list(view.nodes.values()))
    assert not view.wants_nodes(now)
    with pytest.raises(WrongNode):
        await see_origin(placed.desk, said("10.0.0.9"), "n9")
    assert view.wants_nodes(now)


async def test_before_slurm_has_answered_nothing_is_known(placed: Stand) -> None:
    placed.desk.view.nodes, placed.desk.view.asked = {}, 0.0
    with pytest.raises(Unavailable):
        await see_origin(placed.desk, said(N1), "n1")


async def test_a_name_service_that_is_away_makes_no_node_a_wrong_one(placed: Stand) -> None:
    """What was known stays, at once; of a node that was never known nothing can be told."""
    answers: dict[str, frozenset[str] | None] = {"n1": frozenset({N1})}
    hangs = threading.Event()

    def resolve(name: str) -> frozenset[str] | None:
        if name not in answers:
            hangs.wait(20)
        return answers.get(name)

    desk = placed.desk
    desk.hosts = hosts = Resolver(resolve)
    desk.view.nodes = {n: replace(node, hosts=(n,)) for n, node in desk.view.nodes.items()}
    await see_origin(desk, said(N1), "n1")
    del answers["n1"]
    hosts._known["n1"] = (float("-inf"), hosts._known["n1"][1])  # long ago
    await asyncio.wait_for(see_origin(desk, said(N1), "n1"), 5)
    hangs.set()
    await asyncio.sleep(0.05)
    await see_origin(desk, said(N1), "n1")
    with pytest.raises(Unavailable, match="n2 is can't be told"):
        await see_origin(desk, said(N2), "n2")
    answers["n1"] = frozenset()  # it has no address any more
    hosts._known["n1"] = (float("-inf"), frozenset())
    with pytest.raises(Unavailable):
        await see_origin(desk, said(N1), "n1")


async def test_a_second_network_is_named_in_the_configuration(placed: Stand) -> None:
    configured(placed, node_addresses=["n[1-2]=198.51.100.0/28", "n2=203.0.113.7"])
    await see_origin(placed.desk, said("198.51.100.3", N1), "n1")
    await see_origin(placed.desk, said("203.0.113.7"), "n2")
    with pytest.raises(WrongNode):
        await see_origin(placed.desk, said("203.0.113.7"), "n1")


async def test_a_site_may_trust_all_its_nodes(placed: Stand) -> None:
    configured(placed, verify_nodes=False)
    await see_origin(placed.desk, said(N2), "n1")


async def test_the_controllers_host_is_a_node_as_well(placed: Stand) -> None:
    desk = placed.desk
    desk.view.nodes = {"n1": replace(desk.view.nodes["n1"], hosts=("127.0.0.5",))}
    await see_origin(desk, said("127.0.0.1"), "n1")


# -- through the wire ---------------------------------------------------------------------------


@pytest.fixture
async def root_of(placed: Stand) -> AsyncIterator[type]:
    """Clients of root whose connections come from 127.0.0.1, which is n2."""
    desk = placed.desk
    desk.view.nodes = {
        "n1": replace(desk.view.nodes["n1"], hosts=(N1,)),
        "n2": replace(desk.view.nodes["n2"], hosts=("127.0.0.1",)),
    }
    config = Config(controller=Controller(host="127.0.0.1", port=unused_port()))
    munged = StandInMunged()
    server = Server("127.0.0.1", StandInMunge(munged, 0))
    Routes(placed.controller, lambda: config).add_to(server)
    runner = web.AppRunner(server.app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", config.controller.port).start()
    yield lambda host: ControllerClient(config, StandInMunge(munged, 0, host))  # type: ignore[misc]
    await runner.cleanup()


async def test_every_word_of_an_agent_is_bound(root_of: type, placed: Stand, world: World) -> None:
    n1, n2 = world.agents["n1"], world.agents["n2"]
    question = world.question(n1, type("T", (), {"job_id": 7, "uid": ALICE})())
    orders = {"node": "n1", "wait": 0.0, "known": []}
    before = placed.desk.view.agents["n1"]
    async with root_of("127.0.0.1") as root:
        await root.post("/v1/agent/report", world.report(n2), ReportReply)
        for path, body, kind in (
            ("report", world.report(n1), ReportReply),
            ("orders", orders, list[Order]),
            ("start", question, StartAnswer),
        ):
            with pytest.raises(WrongNode, match="n1"):
                await root.post(f"/v1/agent/{path}", body, kind)
    async with root_of(N1) as root:
        with pytest.raises(WrongNode, match="signed on"):
            await root.post("/v1/agent/report", world.report(n2), ReportReply)
    assert placed.desk.view.agents["n1"] is before


# -- a node that is believed for itself, and speaks of others' sessions ---------------------------


async def test_another_node_can_not_give_a_session_away(stand: Stand, world: World) -> None:
    session = stand.session()
    assert session is not None
    assert session.node == "n1"
    mine = world.report(world.agents["n1"]).sessions[0]
    forged = replace(mine, living=Living.COMMITTED, session=str(session.id), checkpoint=0)
    for _ in range(3):
        world.tick(10)
        report = replace(world.report(world.agents["n2"]), sessions=(forged,))
        observe.take_report(stand.desk, report)
        stand.controller.wake_node("n2")
        await stand.surviving(stand.controller.cycle)
    after = stand.session()
    assert after is not None
    assert (after.state, after.checkpoint) == (State.ACTIVE, -1)
    assert world.jobs_by_id[7].state == "RUNNING"


async def test_another_node_can_not_answer_an_order(stand: Stand, world: World) -> None:
    await stand.hibernate()
    session = stand.session()
    assert session is not None
    (order,) = stand.desk.orders.of_node("n1")
    forged = Result(order.id, str(session.id), 0, Verb.HIBERNATE, Out.DONE, "trust me", bytes=9)
    report = replace(world.report(world.agents["n2"]), results=(forged,))
    observe.take_report(stand.desk, report)
    after = stand.session()
    assert after is not None
    assert after.state is State.HIBERNATING
    assert stand.desk.orders.of_node("n1") == [order], "the order is still its own agent's"
    assert (await stand.until(State.HIBERNATED)).checkpoint == 0


async def test_an_agent_tells_what_its_own_node_has_seen(stand: Stand, world: World) -> None:
    session = stand.session()
    assert session is not None
    told = Event(at=world.now(), kind="session-restored", reason="x", job_id=7, uid=ALICE)
    known = stand.kinds()
    for node, event in (
        ("n2", told),  # of a session that n1 has
        ("n1", replace(told, uid=BOB)),  # in another owner's list
        ("n1", replace(told, kind=Fact.DUMP_FAILED.value)),  # which the brake counts
    ):
        report = replace(world.report(world.agents[node]), events=(event,))
        assert observe.take_report(stand.desk, report).events_taken == 1, "told once for all"
        assert stand.kinds() == known
    for event in (told, replace(told, kind="note", job_id=0, uid=-1)):
        report = replace(world.report(world.agents["n1"]), events=(event,))
        observe.take_report(stand.desk, report)
    assert stand.kinds() == [*known, "session-restored", "note"]


async def test_a_session_is_adopted_where_slurm_shows_it(stand: Stand, world: World) -> None:
    world.submit(8)
    world.tick(10)
    told = next(t for t in world.report(world.agents["n1"]).sessions if t.job_id == 8)
    n2 = world.report(world.agents["n2"])
    await observe.ask_slurm(stand.desk)
    stand.desk.view.heard(replace(n2, sessions=(told,)), world.now())
    observe.adopt(stand.desk)
    assert not list(stand.desk.of_job(8))
    await stand.turns(1)
    assert [s.node for s in stand.desk.of_job(8)] == ["n1"]
