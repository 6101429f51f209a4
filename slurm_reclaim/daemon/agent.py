"""The agent's loop: report, take orders, answer the plugin."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from slurm_reclaim.adapters.criu.facts import FactFinder
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.systemd import watchdog_seconds
from slurm_reclaim.adapters.transport import lines
from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon.node_orders import NodeOrders
from slurm_reclaim.daemon.node_preflights import NodePreflights
from slurm_reclaim.daemon.node_sessions import NodeSessions
from slurm_reclaim.daemon.node_uploads import NodeUploads
from slurm_reclaim.daemon.start_terms import managed_by
from slurm_reclaim.errors import BadRequest, ReclaimError, Unavailable
from slurm_reclaim.model.order import Living, Order, Report, ReportReply
from slurm_reclaim.model.upload import Upload

log = logging.getLogger(__name__)

ORDER_WAIT = 25.0
BUSY_INTERVAL = 1.0
RETRY = 3.0
MIN_PAUSE = 0.5
MOST_EVENTS = 500
UNWATCHED = 60.0  # seconds


class Agent:
    """Without a controller it takes no new action and keeps what it has to tell (S8)."""

    def __init__(
        self,
        config: Callable[[], Config],
        sessions: NodeSessions,
        orders: NodeOrders,
        controller: ControllerClient,
        facts: FactFinder,
        alive: Callable[[], None],
        preflights: NodePreflights | None = None,
        uploads: NodeUploads | None = None,
    ) -> None:
        self._config = config
        self._sessions = sessions
        self._orders = orders
        self._controller = controller
        self._facts = facts
        self._alive = alive
        self._preflights = preflights
        self._uploads = uploads
        self._boot = tree.boot_id()
        self._silent = False
        # Of their own: those of the loop may all be busy with what hangs or takes long.
        self._aside = ThreadPoolExecutor(1, "reports")

    async def run(self) -> None:
        work = [self._living(), self._sampling(), self._reporting(), self._ordering()]
        if self._preflights is not None:
            work.append(self._preflights.run())
        if self._uploads is not None:
            work.append(self._uploads.run())
        await asyncio.gather(*work)

    async def _living(self) -> None:
        """For systemd: the loop turns. A store whose server is away, and with it the report, makes
        no sick agent of this one: the next would wait just so, and dumps at work would have been
        given up."""
        while True:
            self._alive()
            await asyncio.sleep(watchdog_seconds() or UNWATCHED)

    # -- samples ------------------------------------------------------------------------------

    async def _sampling(self) -> None:
        """Each sample is reported at once. In a thread of its own: those of the loop may all be
        busy with dumps."""
        loop, sessions = asyncio.get_running_loop(), self._sessions
        thread = ThreadPoolExecutor(1, "samples")
        while True:
            began = loop.time()
            try:
                known = list(sessions.sessions.values())
                await loop.run_in_executor(thread, sessions.samples.take, known, sessions.busy)
                if known:
                    sessions.changed.set()
            except Exception:
                log.exception("samples")
            pause = self._config().agent.interval - (loop.time() - began)
            await asyncio.sleep(max(pause, MIN_PAUSE))

    # -- reports ------------------------------------------------------------------------------

    async def _reporting(self) -> None:
        while True:
            try:
                self._take_notes()
                self._sessions.changed.clear()
                await self._report()
                self._heard()
                self._sessions.sweep()
            except Unavailable as error:
                self._unheard(error)
            except ReclaimError as error:
                log.error("report refused: %s", error)
            except Exception:
                # One session's oddity must not take the other sessions' agent away.
                log.exception("report")
            await self._pause()

    async def _pause(self) -> None:
        """Until the next interval, or at once when something happened; often while work is going
        on, for whoever watches the progress."""
        busy = {Living.DUMPING, Living.RESTORING}
        working = any(s.living in busy for s in self._sessions.sessions.values())
        pause = BUSY_INTERVAL if working else self._config().agent.interval
        try:
            await asyncio.wait_for(self._sessions.changed.wait(), timeout=pause)
            await asyncio.sleep(0.05)
        except asyncio.TimeoutError:
            pass

    async def _report(self) -> None:
        loop = asyncio.get_running_loop()
        facts = await loop.run_in_executor(self._aside, self._facts.facts)
        sessions = await loop.run_in_executor(self._aside, self._sessions.reports)
        events = tuple(self._sessions.events[:MOST_EVENTS])
        results = tuple(self._orders.results.values())
        # After the results: what is told of a checkpoint's upload must be of the same one.
        uploads: tuple[Upload, ...] | None = ()
        if self._uploads is not None:
            uploads = await loop.run_in_executor(self._aside, self._uploads.told)
        report = Report(
            node=self._sessions.node,
            boot_id=self._boot,
            # Last: the controller takes what passes until it hears this for a wrong clock.
            at=time.time(),
            facts=facts,
            sessions=sessions,
            results=results,
            events=events,
            uploads=uploads,
        )
        reply = await self._controller.post("/v1/agent/report", report, ReportReply)
        self._sessions.samples.taken({session.job_id for session in sessions})
        for order in reply.acknowledged:
            self._orders.results.pop(order, None)
        del self._sessions.events[: reply.events_taken]
        if self._uploads is not None and reply.uploads:
            await loop.run_in_executor(self._aside, self._uploads.acknowledged, reply.uploads)
        for job, name in reply.names.items():
            session = self._sessions.get(int(job))
            if session is not None and session.session != name:
                session.session = name
                self._sessions.save(session)

    # -- orders -------------------------------------------------------------------------------

    async def _ordering(self) -> None:
        while True:
            try:
                orders = await self._controller.post(
                    "/v1/agent/orders",
                    {
                        "node": self._sessions.node,
                        "wait": ORDER_WAIT,
                        "known": self._orders.known(),
                    },
                    list[Order],
                    timeout=ORDER_WAIT + 10,
                )
                for order in orders:
                    self._orders.take(order)
            except Unavailable:
                await asyncio.sleep(RETRY)
            except ReclaimError as error:
                log.error("orders refused: %s", error)
                await asyncio.sleep(RETRY)
            except Exception:
                log.exception("orders")
                await asyncio.sleep(RETRY)

    def _heard(self) -> None:
        if self._silent:
            log.info("the controller answers again")
        self._silent = False

    def _unheard(self, error: Unavailable) -> None:
        if not self._silent:
            log.warning("%s; no new action until it answers", error)
        self._silent = True

    # -- notes of the plugin ------------------------------------------------------------------

    def _take_notes(self) -> None:
        """Jobs that started without us because something of ours was missing (S10)."""
        folder = Path(self._config().agent.run) / "missed"
        try:
            notes = sorted(p for p in folder.iterdir() if p.name.isdigit())
        except OSError:
            return
        for path in notes:
            try:
                message = lines.decode(path.read_bytes())
                self._note(message)
            except (BadRequest, OSError) as error:
                log.warning("%s: %s", path, error)
            path.unlink(missing_ok=True)

    def _note(self, message: dict[str, str]) -> None:
        if message.get("waits") == "1":
            self._sessions.note(
                "start-waits",
                f"the job waits for its restore: {message.get('problem', 'unknown problem')}",
                lines.number(message, "job", 0),
                lines.number(message, "uid", -1),
            )
        elif managed_by(self._config(), message)[0]:
            self._sessions.started_unmanaged(
                message.get("problem", "unknown problem"),
                lines.number(message, "job", 0),
                lines.number(message, "uid", -1),
            )
