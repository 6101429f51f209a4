"""reclaimd: the composition root of the controller."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from dataclasses import replace
from functools import partial

import click
from aiohttp import web

from slurm_reclaim.adapters.clock import SteadyClock
from slurm_reclaim.adapters.descriptors import allow_many
from slurm_reclaim.adapters.journal.engine import open_engine
from slurm_reclaim.adapters.journal.journal import SqlJournal
from slurm_reclaim.adapters.journal.lock import Lock, take_lock
from slurm_reclaim.adapters.notify.notices import Notices
from slurm_reclaim.adapters.slurm.nodeset import NodeSetNames
from slurm_reclaim.adapters.slurm.runner import Runner
from slurm_reclaim.adapters.slurm.scheduler import SlurmCommands
from slurm_reclaim.adapters.systemd import notify, watchdog_seconds
from slurm_reclaim.adapters.transport.hosts import Resolver
from slurm_reclaim.adapters.transport.munge import Munge
from slurm_reclaim.adapters.transport.server import Server
from slurm_reclaim.config.load import load
from slurm_reclaim.config.schema import DEFAULT_FILE, Config
from slurm_reclaim.daemon import logs
from slurm_reclaim.daemon.controller import Controller, collect_seldom
from slurm_reclaim.daemon.recovery import recover
from slurm_reclaim.daemon.rounds import Rounds
from slurm_reclaim.daemon.routes import Routes
from slurm_reclaim.errors import ConfigError, ReclaimError, Unavailable
from slurm_reclaim.stages import expire
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.settings import Settings
from slurm_reclaim.stages.view import View

log = logging.getLogger("slurm_reclaim.reclaimd")

DAY = 86400.0
EVENTS_KEPT = 180 * DAY
SETTLED = 5.0  # seconds
# What we tell owners of deadlines must not be further off than this. Who starts anew goes by the
# host's clock again, and by a journal put right (recovery.py).
MOST_BEHIND = 60.0  # seconds


class Reclaimd:
    """What runs between start and stop. `config` is the one in force."""

    def __init__(self, path: str, config: Config) -> None:
        self._path = path
        self.config = config
        self._engine = open_engine(config.controller.journal, config.controller.state)
        self._lock: Lock = take_lock(self._engine)
        self._journal = SqlJournal(self._engine)
        self._rounds = Rounds()
        self._clock = SteadyClock()
        self._stopping = asyncio.Event()
        self._failure: ReclaimError | None = None

    async def run(self) -> None:
        controller = await self._controller()
        server = Server(self.config.controller.host, Munge())
        Routes(controller, lambda: self.config).add_to(server)
        runner = server.runner()
        await runner.setup()
        await self._listen(runner)
        self._schedule(controller)
        self._listen_to_signals(controller)
        collect_seldom()
        log.info(
            "reclaimd for cluster %s, %d sessions, port %d",
            controller.desk.settings.cluster, len(controller.desk.sessions),
            self.config.controller.port,
        )  # fmt: skip
        notify("READY=1")
        await self._stopping.wait()
        notify("STOPPING=1")
        await self._rounds.stop()
        await runner.cleanup()
        await controller.stop()
        self._journal.close()
        self._lock.release()
        if self._failure is not None:
            raise self._failure

    async def _controller(self) -> Controller:
        names = NodeSetNames()
        slurm = SlurmCommands(Runner(self.config.slurm.bin, self.config.slurm.timeout), names)
        cluster = self.config.slurm.cluster or await _ask_cluster(slurm)
        clock = self._clock
        desk = Desk(
            scheduler=slurm,
            journal=self._journal,
            clock=clock,
            names=names,
            settings=settings_of(self.config, cluster),
            view=View(started=clock.now()),
            notifier=Notices(lambda: self.config),
            hosts=Resolver(),
        )
        recover(desk)
        return Controller(desk)

    async def _listen(self, runner: web.AppRunner) -> None:
        listen, port = self.config.controller.listen, self.config.controller.port
        try:
            await web.TCPSite(runner, listen, port, reuse_address=True).start()
        except OSError as error:
            raise ReclaimError(
                f"reclaimd can't listen on {listen}:{port}: {error.strerror}",
                hint="is another program on controller.port?",
            ) from None

    def _schedule(self, controller: Controller) -> None:
        async def cycle() -> None:
            if not self._lock.held():
                self._failure = Unavailable("the journal's lock was lost; another may have it")
                self._stopping.set()
                return
            if (behind := self._clock.behind) > MOST_BEHIND:
                self._failure = Unavailable(
                    f"the host's clock was put back {behind:.0f} s; reclaimd has to be started anew"
                )
                self._stopping.set()
                return
            await controller.cycle()
            notify("WATCHDOG=1")

        async def trim() -> None:
            # Beside the loop: it may be much, and agents wait for answers.
            await asyncio.to_thread(self._journal.trim, time.time() - EVENTS_KEPT)

        async def alive() -> None:
            notify("WATCHDOG=1")

        begin = self._rounds.begin
        begin(cycle, lambda: self.config.slurm.interval)
        begin(trim, lambda: DAY, first=DAY)
        begin(
            partial(_look_through, controller.desk),
            lambda: self.config.retention.interval,
            # When agents have had the time to report.
            first=self.config.agent.silent_after + SETTLED,
        )
        if pause := watchdog_seconds():
            begin(alive, lambda: pause)

    def _listen_to_signals(self, controller: Controller) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._reload(controller))

    def _reload(self, controller: Controller) -> None:
        """The new configuration, or the old one where the new has mistakes."""
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            new = load(self._path)
            for name in _needs_restart(self.config, new):
                log.warning("%s has changed; restart reclaimd for it", name)
            # What was opened at the start stays as it was opened.
            new = replace(new, controller=self.config.controller)
            desk = controller.desk
            desk.settings = settings_of(new, desk.settings.cluster)
            logging.getLogger().setLevel(new.logging.level.upper())
            self.config = new
            self._rounds.changed()
            log.info("configuration read again")
        except ConfigError as error:
            log.error("the old configuration stays in force: %s", error)
        notify("READY=1")


async def _look_through(desk: Desk) -> None:
    """One pass of retention; what is not possible now is for the next."""
    try:
        await expire.cycle(desk)
    except ReclaimError as error:
        log.warning("retention: %s", error)


def settings_of(config: Config, cluster: str) -> Settings:
    return Settings(
        cluster=cluster,
        special_exit=config.slurm.held_state == "special-exit",
        silent_after=config.agent.silent_after,
        restore_wait=config.session.restore_wait,
        tail=config.session.tail,
        dump_timeout=config.agent.dump_timeout,
        config=config,
    )


def _needs_restart(old: Config, new: Config) -> list[str]:
    changed = ["[controller]"] if old.controller != new.controller else []
    for name in ("cluster", "bin", "timeout"):
        if getattr(old.slurm, name) != getattr(new.slurm, name):
            changed.append(f"slurm.{name}")
    return changed


async def _ask_cluster(slurm: SlurmCommands) -> str:
    """Patient: at boot slurmctld may come up after us, and systemd is told READY only then."""
    for pause in (1, 2, 4, 8, 15):
        try:
            return await slurm.cluster()
        except Unavailable as error:
            log.warning("waiting for Slurm: %s", error)
            await asyncio.sleep(pause)
    return await slurm.cluster()


async def _serve(path: str, config: Config) -> None:
    await Reclaimd(path, config).run()


@click.command()
@click.option("--config", "path", default=DEFAULT_FILE, show_default=True, help="Settings file.")
def main(path: str) -> None:
    """The slurm-reclaim controller: watches Slurm and the agents, hibernates and restores."""
    try:
        config = load(path)
        logs.begin(config.logging.level)
        allow_many()
        asyncio.run(_serve(path, config))
    except ReclaimError as error:
        print(f"reclaimd: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
