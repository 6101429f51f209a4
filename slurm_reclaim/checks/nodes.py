"""All compute nodes as their agents last reported to reclaimd."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ClusterShell.NodeSet import NodeSet

from slurm_reclaim.checks.result import Check, Family
from slurm_reclaim.config.load import digest
from slurm_reclaim.config.schema import Config
from slurm_reclaim.model import driver, extras
from slurm_reclaim.model.order import NodeFacts
from slurm_reclaim.model.status import NodeStatus

_FAMILY = Family("nodes")
_AWAY = {"down", "drain", "drained", "power_down", "powered_down", "powering_down", "future"}


def judge(nodes: Sequence[NodeStatus], config: Config, version: str) -> list[Check]:
    heard = [n for n in nodes if 0 <= n.age <= config.agent.silent_after]
    here = digest(config)
    return [
        _heard(nodes, heard, config.agent.interval),
        _every(heard, "plugin on every node", lambda f: f.plugin_seen, _no_plugin, _PLUGIN_HINT),
        _every(heard, "criu on every node", lambda f: f.criu_ok, _criu_problem, _CRIU_HINT),
        _every(heard, "store on every node", lambda f: f.store_ok, _store_problem, _STORE_HINT),
        _every(
            heard,
            "same version everywhere",
            lambda f: f.version == version,
            lambda f: f"has {f.version or 'an unknown version'}",
            f"this host has {version}; install the same version everywhere",
        ),
        _every(
            heard,
            "same configuration everywhere",
            lambda f: f.config_digest == here,
            lambda f: f"has {f.config_digest or 'an unknown one'}",
            f"this host has {here}; copy one configuration to all hosts and reload reclaim-agent",
        ),
        *_gpus([n for n in heard if n.facts.gpus or n.facts.gpu_problem]),
    ]


_PLUGIN_HINT = (
    "`make -C spank install` there; without them no session starts managed or can be restored "
    "there. `reclaim check` as root on one of these nodes names the file"
)
_CRIU_HINT = "run `reclaim check` as root on one of these nodes"
_STORE_HINT = (
    "run `reclaim check` as root on one of these nodes: is the store mounted, are its keys there?"
)


_GPU_HINT = "docs/gpu.md; sessions without a GPU are not touched by this"


def fold(names: Iterable[str]) -> str:
    return str(NodeSet.fromlist(list(names)))


def _heard(nodes: Sequence[NodeStatus], heard: Sequence[NodeStatus], interval: float) -> Check:
    name = "agent on every node"
    known = {node.name for node in heard}
    silent = [n for n in nodes if n.name not in known]
    expected = [n.name for n in silent if not _AWAY & {s.lower() for s in n.states}]
    # A reclaimd that was started just now has heard of nobody.
    hint = f"systemctl status reclaim-agent there; one that runs reports every {interval:g} s"
    if expected:
        return _FAMILY.failed(
            name, f"{len(heard)} of {len(nodes)} report; silent: {fold(expected)}", hint
        )
    if not heard:
        return _FAMILY.failed(name, "no agent has reported", hint)
    away = f" (down or drained: {fold(n.name for n in silent)})" if silent else ""
    return _FAMILY.ok(name, f"{len(heard)} report{away}")


def _every(
    heard: Sequence[NodeStatus],
    name: str,
    good: Callable[[NodeFacts], bool],
    say: Callable[[NodeFacts], str],
    hint: str,
) -> Check:
    """Nodes with the same problem are named together."""
    problems: dict[str, list[str]] = {}
    for node in heard:
        if not good(node.facts):
            problems.setdefault(say(node.facts), []).append(node.name)
    if not heard:
        return _FAMILY.unchecked(name, "no agent has reported")
    if not problems:
        return _FAMILY.ok(name, fold(n.name for n in heard))
    what = "; ".join(f"{fold(names)}: {problem}" for problem, names in problems.items())
    return _FAMILY.failed(name, what, hint)


def _gpus(nodes: Sequence[NodeStatus]) -> list[Check]:
    """Of nodes with GPUs; none where there is no such node. Sessions without a GPU don't need it,
    so it is no failure."""
    if not nodes:
        return []
    name = "CUDA checkpoints on GPU nodes"
    said: dict[str, list[str]] = {}
    for node in nodes:
        why = node.facts.gpu_problem or driver.advice(node.facts.gpu_driver)
        if why:
            said.setdefault(why, []).append(node.name)
    drivers = sorted({n.facts.gpu_driver for n in nodes if n.facts.gpu_driver})
    if len(drivers) > 1:
        said.setdefault(f"drivers differ: {', '.join(drivers)}", []).extend(n.name for n in nodes)
    if not said:
        return [_FAMILY.ok(name, f"{fold(n.name for n in nodes)}, driver {drivers[0]}")]
    what = "; ".join(f"{fold(names)}: {why}" for why, names in said.items())
    hint = _GPU_HINT
    if any("installed" in why for why in said):
        hint = f"{extras.install('gpu', 'cuda')} there; {hint}"
    return [_FAMILY.warning(name, what, hint)]


def _no_plugin(facts: NodeFacts) -> str:
    return facts.plugin_problem or "the plugin does not work there"


def _criu_problem(facts: NodeFacts) -> str:
    return facts.criu_problem or f"CRIU {facts.criu or 'is missing'}"


def _store_problem(facts: NodeFacts) -> str:
    return facts.store_problem or "not usable"
