"""The SPANK plugin on a compute node: installed, named in plugstack.conf, and named `optional`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from slurm_reclaim.checks.host import Host
from slurm_reclaim.checks.result import Check, Family
from slurm_reclaim.config.schema import Agent
from slurm_reclaim.model import plugstack
from slurm_reclaim.model.plugstack import PLUGIN, PROGRAMS, Line

_FAMILY = Family("plugin")
_LIBEXEC = "/usr/libexec/slurm-reclaim"


def judge(host: Host, slurm: Mapping[str, str], agent: Agent) -> list[Check]:
    """`slurm` is `scontrol show config`; empty where Slurm did not answer."""
    stack = slurm.get("PlugStackConfig") or "/etc/slurm/plugstack.conf"
    ours = plugstack.ours(host, stack)
    checks = [*_stack(stack, ours), *_files(host, slurm, ours)]
    return [*checks, _meeting(ours[0], agent)] if ours else checks


def _stack(stack: str, ours: list[Line]) -> list[Check]:
    name = "plugstack.conf"
    if not ours:
        return [
            _FAMILY.failed(
                name,
                f"{stack} does not name {PLUGIN}",
                f"write `include /etc/slurm/plugstack.conf.d/*.conf` into {stack} and put "
                "etc/plugstack.conf.d/slurm-reclaim.conf there",
            )
        ]
    if len(ours) > 1:
        where = ", ".join(line.file for line in ours)
        return [_FAMILY.failed(name, f"names {PLUGIN} {len(ours)} times: {where}", "keep one")]
    line = ours[0]
    return [
        _FAMILY.judge(
            name,
            line.flag == "optional",
            f"{line.file}: {line.flag} {line.path}",
            "write `optional`: with `required`, a plugin that does not load (after an update of "
            "Slurm, for one) fails every job and drains the node",
        )
    ]


def _meeting(line: Line, agent: Agent) -> Check:
    """The plugin reads no configuration: its arguments must name the agent's places."""
    given = dict(argument.split("=", 1) for argument in line.arguments if "=" in argument)
    standard = Agent()
    wrong = [
        f"{name}={getattr(agent, name)}"
        for name in ("socket", "state", "run")
        if given.get(name, getattr(standard, name)) != getattr(agent, name)
    ]
    return _FAMILY.judge(
        "plugin finds agent",
        not wrong,
        "its arguments and [agent] do not agree" if wrong else "its arguments and [agent] agree",
        f"write into {line.file}: {line.flag} {line.path} {' '.join(wrong)}",
    )


def _files(host: Host, slurm: Mapping[str, str], ours: list[Line]) -> list[Check]:
    path = ours[0].path if ours else PLUGIN
    # Slurm looks for a bare name in its PluginDir, which may be a list.
    folders = [""] if path.startswith("/") else slurm.get("PluginDir", "").split(":")
    candidates = [posixpath.join(folder, path) for folder in folders if folder or path[0] == "/"]
    libexec = next(
        (
            a.partition("=")[2]
            for a in (ours[0].arguments if ours else ())
            if re.match("libexec=", a)
        ),
        _LIBEXEC,
    )
    checks = []
    if candidates:
        # Into the last of a list: what came first may be another product's.
        hint = f"make -C spank install PLUGINDIR={posixpath.dirname(candidates[-1])}"
        checks.append(_trusted(host, "plugin file", candidates, hint))
    else:
        checks.append(_FAMILY.unchecked("plugin file", "Slurm does not say where its plugins are"))
    checks += [
        _trusted(host, program, [f"{libexec}/{program}"], "make -C spank install")
        for program in PROGRAMS
    ]
    return checks


def _trusted(host: Host, name: str, candidates: list[str], hint: str) -> Check:
    """One of `candidates` is there and nobody but root can change it: root runs it."""
    for path in candidates:
        if not host.exists(path):
            continue
        culprit = host.tampered(path)
        return _FAMILY.judge(
            name,
            not culprit,
            f"{path}: others than root can change {culprit}" if culprit else path,
            f"chown root:root {culprit}; chmod go-w {culprit}",
        )
    return _FAMILY.failed(name, f"{' or '.join(candidates)} is missing", hint)
