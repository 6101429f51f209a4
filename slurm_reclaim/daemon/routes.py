"""The paths of docs/protocol.md: from a request to the stage that answers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from slurm_reclaim import __version__
from slurm_reclaim.adapters.transport.server import MOST_BYTES, MOST_BYTES_OF_AGENTS, Ask, Server
from slurm_reclaim.adapters.transport.wire import decode_request
from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon.controller import Controller
from slurm_reclaim.daemon.recordings import Recordings
from slurm_reclaim.errors import BadRequest, NotPermitted, Unavailable
from slurm_reclaim.model.catalogue import Errand, Listing
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.explanation import Explanation
from slurm_reclaim.model.order import Order, Report, ReportReply, StartAnswer, StartQuestion
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.status import NodeStatus, Status
from slurm_reclaim.model.trace import Recorded
from slurm_reclaim.model.upgrade import Forecast, Upgrade
from slurm_reclaim.stages import abandon, observe, requests, start, stored
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.origin import see_origin
from slurm_reclaim.stages.upgrade import forecast

LONGEST_WAIT = 60.0  # seconds an agent's question for orders is held open


@dataclass(frozen=True)
class OrdersQuestion:
    node: str
    wait: float = 0.0
    known: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Wish:
    reason: str = ""


@dataclass(frozen=True)
class RestoreWish:
    """`accept`: absolute paths of files that may have changed while the session slept."""

    accept: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeepWish:
    """`seconds`: 0 is what idle.keep says."""

    seconds: float = 0.0


@dataclass(frozen=True)
class Brake:
    """Why nothing is hibernated; "" where the brake is off."""

    reason: str = ""


@dataclass(frozen=True)
class CheckpointWish:
    """`checkpoint` as in parse_checkpoint_ref; `start_over` for `abandon`."""

    checkpoint: str
    reason: str = ""
    start_over: bool = False


class Routes:
    def __init__(self, controller: Controller, config: Callable[[], Config]) -> None:
        self._controller = controller
        self._desk: Desk = controller.desk
        self._config = config
        self._recordings = Recordings(controller.desk)

    def add_to(self, server: Server) -> None:
        for method, path, answering in (
            ("POST", "/v1/agent/report", self.report),
            ("POST", "/v1/agent/orders", self.orders),
            ("POST", "/v1/agent/start", self.start),
            ("GET", "/v1/sessions", self.sessions),
            ("GET", "/v1/sessions/{job}", self.session),
            ("POST", "/v1/sessions/{job}/hibernate", self.hibernate),
            ("POST", "/v1/sessions/{job}/restore", self.restore),
            ("POST", "/v1/sessions/{job}/keep", self.keep),
            ("GET", "/v1/sessions/{job}/explain", self.explain),
            ("POST", "/v1/brake", self.brake),
            ("GET", "/v1/checkpoints", self.checkpoints),
            ("POST", "/v1/checkpoints/{verb}", self.checkpoint),
            ("GET", "/v1/checkpoints/errands/{number}", self.errand),
            ("POST", "/v1/upgrade", self.upgrade),
            ("GET", "/v1/events", self.events),
            ("GET", "/v1/samples", self.samples),
            ("GET", "/v1/status", self.status),
        ):
            agents = path.startswith("/v1/agent/")
            server.route(method, path, answering, MOST_BYTES_OF_AGENTS if agents else MOST_BYTES)
        server.close_routes()

    # -- agents -------------------------------------------------------------------------------

    async def report(self, ask: Ask) -> ReportReply:
        _only_root(ask)
        report = decode_request(ask.body, Report)
        await see_origin(self._desk, ask.caller, report.node)
        reply = observe.take_report(self._desk, report)
        self._controller.wake_node(report.node)
        return reply

    async def orders(self, ask: Ask) -> list[Order]:
        _only_root(ask)
        question = decode_request(ask.body, OrdersQuestion)
        await see_origin(self._desk, ask.caller, question.node)
        wait = min(max(question.wait, 0.0), LONGEST_WAIT)
        return await self._desk.orders.wait(question.node, set(question.known), wait)

    async def start(self, ask: Ask) -> StartAnswer:
        _only_root(ask)
        question = decode_request(ask.body, StartQuestion)
        await see_origin(self._desk, ask.caller, question.node)
        return await start.answer(self._desk, question)

    # -- users --------------------------------------------------------------------------------

    async def sessions(self, ask: Ask) -> list[Session]:
        ended = _number(ask, "all", 0) != 0
        return await requests.sessions(self._desk, ask.caller, ended=ended)

    async def session(self, ask: Ask) -> Session:
        return await requests.session(self._desk, ask.caller, ask.match["job"])

    async def hibernate(self, ask: Ask) -> Session:
        wish = decode_request(ask.body or b"{}", Wish)
        return await requests.ask_hibernate(self._desk, ask.caller, ask.match["job"], wish.reason)

    async def restore(self, ask: Ask) -> Session:
        wish = decode_request(ask.body or b"{}", RestoreWish)
        return await requests.ask_restore(self._desk, ask.caller, ask.match["job"], wish.accept)

    async def keep(self, ask: Ask) -> Session:
        wish = decode_request(ask.body or b"{}", KeepWish)
        kept = await requests.keep(self._desk, ask.caller, ask.match["job"], wish.seconds)
        self._controller.wake([kept.id])
        return kept

    async def explain(self, ask: Ask) -> Explanation:
        return await requests.explain(self._desk, ask.caller, ask.match["job"])

    async def brake(self, ask: Ask) -> Brake:
        wish = decode_request(ask.body or b"{}", Wish)
        return Brake(await requests.set_brake(self._desk, ask.caller, wish.reason))

    async def checkpoints(self, ask: Ask) -> Listing:
        return await stored.listing(self._desk, ask.caller)

    async def checkpoint(self, ask: Ask) -> object:
        """One checkpoint, named in the body."""
        wish, desk = decode_request(ask.body, CheckpointWish), self._desk
        verb = ask.match["verb"]
        if verb == "show":
            return await stored.show(desk, ask.caller, wish.checkpoint)
        if verb == "pin":
            return await stored.pin(desk, ask.caller, wish.checkpoint, wish.reason)
        if verb == "unpin":
            return await stored.unpin(desk, ask.caller, wish.checkpoint)
        if verb == "verify":
            return await stored.verify(desk, ask.caller, wish.checkpoint)
        if verb == "expire":
            return await stored.expire_now(desk, ask.caller, wish.checkpoint)
        if verb == "abandon":
            return await self._abandon(ask, wish)
        raise BadRequest(f"there is no {verb!r} for checkpoints")

    async def _abandon(self, ask: Ask, wish: CheckpointWish) -> Session:
        after = await abandon.abandon(
            self._desk, ask.caller, wish.checkpoint, start_over=wish.start_over
        )
        self._controller.wake([after.id])
        return after

    async def errand(self, ask: Ask) -> Errand:
        wait = min(_number(ask, "wait", 0), LONGEST_WAIT)
        return await stored.errand(self._desk, ask.match["number"], wait)

    async def upgrade(self, ask: Ask) -> Forecast:
        """It names sessions of everybody: for operators."""
        if not await requests.is_operator(self._desk, ask.caller):
            raise NotPermitted("only root and Slurm operators may plan upgrades")
        return await forecast(self._desk, decode_request(ask.body, Upgrade))

    async def events(self, ask: Ask) -> list[Event]:
        job, after = ask.query.get("job", ""), _number(ask, "after", 0)
        limit = _number(ask, "limit", 200)
        return await requests.events(self._desk, ask.caller, job, after, limit)

    async def samples(self, ask: Ask) -> Recorded:
        """Everything that is measured of everybody: for operators."""
        if not await requests.is_operator(self._desk, ask.caller):
            raise NotPermitted("only root and Slurm operators may record samples")
        after = -1 if "after" not in ask.query else _number(ask, "after", 0)
        return await self._recordings.after(after, min(_number(ask, "wait", 0), LONGEST_WAIT))

    async def status(self, ask: Ask) -> Status:
        view, now = self._desk.view, self._desk.clock.now()
        try:
            full = await requests.is_operator(self._desk, ask.caller)
        except Unavailable:
            full = False
        counts: dict[str, int] = {}
        for session in self._desk.sessions.values():
            counts[session.state.value] = counts.get(session.state.value, 0) + 1
        return Status(
            version=__version__,
            mode=self._config().mode,
            cluster=self._desk.settings.cluster,
            now=now,
            started=view.started,
            slurm_age=now - view.asked if view.asked else -1.0,
            slurm_problem=view.problem,
            sessions=counts,
            nodes=_nodes(self._desk, now) if full else (),
            brake=self._desk.brake,
        )


def _nodes(desk: Desk, now: float) -> tuple[NodeStatus, ...]:
    view, found = desk.view, []
    for name in sorted({*view.nodes, *view.agents}):
        node, heard = view.nodes.get(name), view.agents.get(name)
        states = tuple(sorted(node.states)) if node is not None else ()
        if heard is None:
            found.append(NodeStatus(name, states=states))
            continue
        report = heard.report
        found.append(NodeStatus(name, now - heard.at, states, len(report.sessions), report.facts))
    return tuple(found)


def _only_root(ask: Ask) -> None:
    if not ask.caller.root:
        raise NotPermitted("only reclaim-agent, which runs as root, may say this")


def _number(ask: Ask, name: str, default: int) -> int:
    text = ask.query.get(name, "") or str(default)
    if not text.isdecimal() or len(text) > 15:
        raise BadRequest(f"{name}={text!r} is no number")
    return int(text)
