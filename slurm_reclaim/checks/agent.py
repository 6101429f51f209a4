"""reclaim-agent on a compute node: its socket, as the plugin finds it."""

from __future__ import annotations

import stat

from slurm_reclaim.checks.host import Host, mode, others_may
from slurm_reclaim.checks.result import Check, Family

_FAMILY = Family("agent")


def judge(host: Host, socket: str) -> list[Check]:
    name = "agent socket"
    start = "systemctl enable --now reclaim-agent; journalctl -u reclaim-agent"
    status = host.stat(socket)
    if status is None or not stat.S_ISSOCK(status.st_mode):
        return [_FAMILY.failed(name, f"there is no socket {socket}", start)]
    if status.st_uid != host.root_uid or others_may(status, 7):
        return [
            _FAMILY.failed(
                name,
                f"{socket} is open to others than root ({mode(status)}, uid {status.st_uid})",
                "restart reclaim-agent, which makes it 0600; if it comes back so, report it",
            )
        ]
    alive = host.connects(socket)
    return [
        _FAMILY.judge(name, alive, f"{socket} {'answers' if alive else 'does not answer'}", start)
    ]
