"""All checks that can be made from where we stand, in the order in which things depend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slurm_reclaim.checks import (
    agent,
    control,
    criu,
    kernel,
    keys,
    nodes,
    notices,
    plugin,
    settings,
    slurm,
    store,
)
from slurm_reclaim.checks.host import Host
from slurm_reclaim.checks.result import Check, Family
from slurm_reclaim.config.load import Loaded
from slurm_reclaim.config.schema import Config
from slurm_reclaim.errors import ConfigError
from slurm_reclaim.model.status import Status


@dataclass(frozen=True)
class Ways:
    """How to get at what is checked: `load` reads the configuration, `ask` asks reclaimd, `codec`
    is the way to munged, `channels` look at the ways to people, `remote` at the store's
    remote place."""

    host: Host
    load: Callable[[], Loaded]
    ask: Callable[[], Status]
    codec: control.Codec
    channels: notices.Channels
    remote: store.Look
    version: str


def survey(ways: Ways) -> list[Check]:
    try:
        loaded = ways.load()
    except ConfigError as error:
        rest = "the configuration comes first"
        return [*settings.mistakes(error), Family("controller").unchecked("everything else", rest)]
    config, host = loaded.config, ways.host
    checks = settings.judge(host, loaded)
    found, status = control.judge(ways.codec, ways.ask, host.uid, config, ways.version)
    checks += found
    found, slurm_settings = slurm.read(host, config)
    checks += found
    if slurm_settings:
        checks.append(slurm.account(host, config))
    checks += notices.judge(host, config, ways.channels)
    return checks + _this_node(ways, config, slurm_settings) + _all_nodes(status, config, ways)


def _this_node(ways: Ways, config: Config, slurm_settings: dict[str, str]) -> list[Check]:
    family, host = Family("this node"), ways.host
    if host.uid != 0:
        return [family.unchecked("this node", "only root can look", "run it as root on each node")]
    # Without Slurm's word, a running agent tells a compute node.
    if not slurm.knows_node(host, config) and not host.exists(config.agent.socket):
        return [family.unchecked("this node", f"{host.name} is no compute node of the cluster")]
    return [
        *kernel.judge(host, config.session.block_io_uring),
        *criu.judge(host, config.agent.criu),
        *plugin.judge(host, slurm_settings, config.agent),
        *agent.judge(host, config.agent.socket),
        *store.judge(host, config.store, ways.remote),
        *keys.judge(host, config.store),
    ]


def _all_nodes(status: Status | None, config: Config, ways: Ways) -> list[Check]:
    family = Family("nodes")
    if status is None:
        return [family.unchecked("all nodes", "reclaimd did not tell")]
    if not status.nodes and ways.host.uid != 0:
        return [
            family.unchecked(
                "all nodes",
                "only root and Slurm operators may see them",
                "run it as root or as a Slurm operator",
            )
        ]
    same = keys.everywhere(status.nodes, ways.host, config.store, config.agent.silent_after)
    return [*nodes.judge(status.nodes, config, ways.version), same]
