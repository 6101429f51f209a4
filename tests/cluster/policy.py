"""A policy in a hurry for tests: windows of seconds instead of minutes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.conftest import Lab

FAST = """\
mode = "{mode}"
[slurm]
interval = "1s"
[agent]
interval = "2s"
silent_after = "20s"
[idle]
window = "{window}"
grace = "{grace}"
gap = "{gap}"
min_age = "0s"
cooldown = "{cooldown}"
# The start of a server reads and computes more than the usual floors, as an average over a minute.
io_floor = "10MiB"
cpu_floor = 0.5
[limits]
per_node = 8
brake_least = 100000
[notice]
channels = ["terminal", "comment", "hook"]
enough = ["terminal", "hook"]
"""
# Another mode for jobs of this name.
SHADOW = """
[[rule]]
name = "only watched"
job_name = ["watched"]
mode = "shadow"
"""
PLACE = "/etc/slurm-reclaim/conf.d/zz-policy.toml"
HOOK = "/etc/slurm-reclaim/hooks.d/50-test"
NOTICES = "/shared/notices.jsonl"


@contextmanager
def policy(
    lab: Lab,
    *,
    mode: str = "prod",
    window: str = "10s",
    grace: str = "10s",
    cooldown: str = "1m",
    gap: str = "20s",
    more: str = "",
    nodes: tuple[str, ...] = ("n1", "n2"),
) -> Iterator[None]:
    """In force on the whole cluster inside the block; notices land in NOTICES."""
    times = {"window": window, "grace": grace, "cooldown": cooldown, "gap": gap}
    text = FAST.format(mode=mode, **times) + more
    try:
        for node in ("ctl", *nodes):
            lab.exec(node, "sh", "-c", f"cat > {PLACE}", stdin=text)
        script = f"#!/bin/sh\ncat >> {NOTICES}\necho >> {NOTICES}\n"
        lab.exec(
            "ctl", "sh", "-c",
            f"mkdir -p $(dirname {HOOK}) && cat > {HOOK} && chmod 755 {HOOK} && "
            f": > {NOTICES} && chmod 666 {NOTICES}",
            stdin=script,
        )  # fmt: skip
        _restart(lab, nodes)
        yield
    finally:
        for node in ("ctl", *nodes):
            lab.exec(node, "rm", "-f", PLACE, HOOK, check=False)
        _restart(lab, nodes)


def _restart(lab: Lab, nodes: tuple[str, ...]) -> None:
    lab.restart_daemon("ctl", "reclaimd")
    for node in nodes:
        lab.restart_daemon(node, "reclaim-agent")
    # Tests answer more warnings than any site's owners: the usual limits would pull it.
    lab.wait(
        "reclaimd to answer",
        lambda: lab.exec("ctl", "reclaim", "brake", "--release", check=False).returncode == 0,
    )
