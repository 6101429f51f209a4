"""reclaim-agent: the composition root of the node's side."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click
import sh

from slurm_reclaim.adapters.criu.facts import FactFinder
from slurm_reclaim.adapters.cuda.driver import tools_missing
from slurm_reclaim.adapters.file_lock import FileLock
from slurm_reclaim.adapters.gpu.cards import AT_START, NodeCards
from slurm_reclaim.adapters.gpu.watch import nvml
from slurm_reclaim.adapters.slurm.plugin_here import PluginHere
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.places import AnyStore, remote_of, stock_of, store_of
from slurm_reclaim.adapters.store.records import SessionRecords, write_durably
from slurm_reclaim.adapters.systemd import notify
from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.adapters.transport.munge import Munge
from slurm_reclaim.adapters.transport.plugin_socket import PluginSocket
from slurm_reclaim.config.load import digest, load
from slurm_reclaim.config.schema import DEFAULT_FILE, Config
from slurm_reclaim.daemon import logs
from slurm_reclaim.daemon.agent import Agent
from slurm_reclaim.daemon.node_orders import NodeOrders
from slurm_reclaim.daemon.node_preflights import NodePreflights
from slurm_reclaim.daemon.node_samples import NodeSamples
from slurm_reclaim.daemon.node_sessions import NodeSessions
from slurm_reclaim.daemon.node_starts import NodeStarts
from slurm_reclaim.daemon.node_uploads import NodeUploads
from slurm_reclaim.daemon.start_terms import block_io_uring
from slurm_reclaim.errors import ConfigError, ReclaimError, SchedulerUnavailable

log = logging.getLogger("slurm_reclaim.agent")
# Seconds for Slurm to say how it is configured; fewer where that can be done without: sessions
# wait for an agent that is started anew.
_SLURM_PATIENCE, _SHORT_PATIENCE = 60, 5


class SystemClock:
    def now(self) -> float:
        return time.time()


class Settings:
    """The configuration in force; `reload` keeps the old one where the new one is wrong."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.config = load(path)

    def __call__(self) -> Config:
        return self.config

    def reload(self) -> None:
        try:
            self.config = load(self._path)
            log.info("configuration read again")
        except ConfigError as error:
            log.error("the old configuration stays in force: %s", error)


def slurm_settings(config: Config) -> dict[str, str]:
    """`scontrol show config`, asked once. Without it where the configuration names the cluster and
    Slurm does not answer, else raises SchedulerUnavailable."""
    scontrol = sh.Command(f"{config.slurm.bin}/scontrol")
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    patience = _SHORT_PATIENCE if config.slurm.cluster else _SLURM_PATIENCE
    try:
        text = str(scontrol("show", "config", _env=environment, _timeout=patience))
    except (sh.ErrorReturnCode, sh.CommandNotFound, sh.TimeoutException) as error:
        if config.slurm.cluster:
            log.warning("Slurm does not say how it is configured: %s", error)
            return {}
        raise SchedulerUnavailable(
            f"the cluster's name could not be asked of Slurm: {error}",
            hint="set slurm.cluster in the configuration",
        ) from error
    return dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", text, re.MULTILINE))


def cluster_name(config: Config, slurm: Mapping[str, str]) -> str:
    """From the configuration or from Slurm. Raises SchedulerUnavailable."""
    name = config.slurm.cluster or slurm.get("ClusterName", "")
    if not name:
        raise SchedulerUnavailable("scontrol show config names no ClusterName")
    return name


def node_name() -> str:
    """The node's name in Slurm: SLURMD_NODENAME where set, else the short host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]


def tell_plugin(config: Config, cluster: str) -> None:
    """What the plugin must know when no agent answers: where images are, how long to wait."""
    lines = {
        "store": config.store.path,
        "cluster": cluster,
        "restore_wait": f"{config.session.restore_wait:.0f}",
        "scontrol": f"{config.slurm.bin}/scontrol",
        "held_state": "SpecialExit" if config.slurm.held_state == "special-exit" else "",
        "private_tmp": config.session.private_tmp,
        "remote": "1" if config.store.remote else "0",
        "block_io_uring": "1" if block_io_uring(config.session.block_io_uring) else "0",
    }
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    write_durably(Path(config.agent.state) / "plugin.conf", text.encode())


def only_agent(state: Path) -> FileLock:
    """A second one, started by hand beside the unit's, would take the sessions' socket away from
    the first, and leave none when it ends: jobs would start unmanaged from then on. Raises Refused
    naming the first."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    return FileLock(
        state / "agent.lock",
        "another reclaim-agent ({}) looks after this node",
        "stop it first (systemctl stop reclaim-agent); sessions run on without an agent",
    )


def fact_finder(
    config: Config, slurm: Mapping[str, str], store: AnyStore, keys: KeyFile, gpus: NodeCards
) -> FactFinder:
    plugin = PluginHere(slurm.get("PlugStackConfig", ""), f"{config.slurm.bin}/scontrol")

    def orders() -> bool:
        remote = remote_of(store)
        return remote is None or not remote.remote_problem()

    return FactFinder(
        config.agent.criu, store, keys, digest(config), plugin.problem, orders, gpus.look
    )


async def serve(settings: Settings) -> None:
    config = settings()
    lock = only_agent(Path(config.agent.state))
    slurm = await asyncio.to_thread(slurm_settings, config)
    cluster, node = cluster_name(config, slurm), node_name()
    state = Path(config.agent.state)
    keys = KeyFile(Path(config.store.keys))
    store = await asyncio.to_thread(store_of, config.store, cluster, state / "work", keys)
    remote = remote_of(store)
    tell_plugin(config, cluster)
    clock = SystemClock()
    records = SessionRecords(Path(config.agent.state) / "sessions")
    sessions = NodeSessions(config, node, records, NodeSamples(settings))
    gpus = NodeCards(nvml(), partial(tools_missing, config.gpu.cuda_checkpoint))
    await asyncio.to_thread(gpus.look, AT_START)
    facts = await asyncio.to_thread(fact_finder, config, slurm, store, keys, gpus)
    controller = ControllerClient(config, Munge())
    starts = NodeStarts(settings, sessions, store, controller, facts, clock)
    orders = NodeOrders(sessions, starts, store, stock_of(store, node), clock)
    plugin = PluginSocket(Path(config.agent.socket), starts.start, starts.attach, sessions.left)
    uploads = None if remote is None else NodeUploads(remote, sessions.changed.set)
    preflights = NodePreflights(settings, sessions, store, clock)
    agent = Agent(
        settings,
        sessions,
        orders,
        controller,
        facts,
        lambda: notify("WATCHDOG=1"),
        preflights,
        uploads,
    )
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, settings.reload)
    await plugin.open()
    notify("READY=1")
    log.info(
        "reclaim-agent on %s of cluster %s, %d sessions", node, cluster, len(sessions.sessions)
    )
    # What is there now stays: the collector need not go through it again at every sample.
    gc.collect()
    gc.freeze()
    running = loop.create_task(agent.run())
    stopping = loop.create_task(stop.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    notify("STOPPING=1")
    await plugin.close()
    await controller.close()
    if running.done():
        running.result()
    # A dump or restore at work lives in a thread: exit without waiting for it. CRIU goes on by
    # itself, and the next agent takes up the session (node_recovery).
    lock.release()
    logging.shutdown()
    os._exit(0)


@click.command()
@click.option("--config", "path", default=DEFAULT_FILE, show_default=True, help="Settings file.")
def main(path: str) -> None:
    """The slurm-reclaim agent: watches, hibernates and restores the sessions of this node."""
    try:
        settings = Settings(path)
        logs.begin(settings().logging.level)
        logging.getLogger("sh").setLevel(logging.WARNING)
        if os.geteuid() != 0:
            raise ReclaimError("reclaim-agent must run as root")
        asyncio.run(serve(settings))
    except ReclaimError as error:
        print(f"reclaim-agent: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
