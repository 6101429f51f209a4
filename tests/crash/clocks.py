"""Wall clocks that are put forward or back: of our programs on a node, on the controller's host, or
on all hosts; Slurm's, MUNGE's and the kernel's stay right (clock.c)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.crash.rig import Rig
from tests.crash.session import Ticker

HOUR = 3600
# Within what MUNGE and we allow between two hosts.
SLIGHT = 200
# A clock that is alone in being wrong is put right after a while, as chrony does it.
ALONE = 8.0  # seconds

Event = Callable[[Rig, Ticker], str]


def step(which: str, seconds: int, lasts: float = 0.0) -> Event:
    """`which`: node, ctl or all. `lasts`: seconds; 0: until the point is over."""

    def happen(rig: Rig, ticker: Ticker) -> str:
        hosts = _hosts(rig, ticker.node, which)
        rig.put_clocks(hosts, seconds)
        if lasts:
            timer = threading.Timer(lasts, rig.put_clocks, (hosts, 0))
            timer.daemon = True
            timer.start()
            rig.timers.setdefault(ticker.node, []).append(timer)
        return ""

    return happen


def _hosts(rig: Rig, node: str, which: str) -> list[str]:
    return {"node": [node], "ctl": ["ctl"], "all": ["ctl", *rig.nodes]}[which]


def right_again(rig: Rig, node: str, which: str) -> None:
    for timer in rig.timers.pop(node, []):
        timer.cancel()
        timer.join()
    rig.put_clocks(_hosts(rig, node, which), 0)


STEPS: dict[str, tuple[str, Event]] = {
    "the node's clock an hour ahead for 8 s": ("node", step("node", HOUR, ALONE)),
    "the node's clock an hour behind for 8 s": ("node", step("node", -HOUR, ALONE)),
    "the node's clock 200 s ahead": ("node", step("node", SLIGHT)),
    "the node's clock 200 s behind": ("node", step("node", -SLIGHT)),
    "ctl's clock an hour ahead for 8 s": ("ctl", step("ctl", HOUR, ALONE)),
    "ctl's clock an hour behind for 8 s": ("ctl", step("ctl", -HOUR, ALONE)),
    "all clocks an hour ahead": ("all", step("all", HOUR)),
    "all clocks an hour behind": ("all", step("all", -HOUR)),
}
