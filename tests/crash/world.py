"""What happens around us: nodes, Slurm's daemons, accounts and owners, at a moment that is held."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.crash.rig import LabError, Rig
from tests.crash.session import Ticker, Violation

Event = Callable[[Rig, Ticker], str]
"""Gives "ended" where it ends the session by itself, else ""."""


# A slurmctld that has forgotten a start makes another one while slurmd still ends the first, and
# drains the node for it. No job of ours is needed for that.
OF_SLURM = "Duplicate jobid"


def check_node(rig: Rig, node: str, patience: float = 60.0) -> None:
    """It was not drained for anything of ours, and where it is down it comes back."""
    deadline = time.monotonic() + patience
    while True:
        state = rig.sh("ctl", f"sinfo -h -n {node} -p of-{node} -o %T", check=False)
        if "drain" in state and OF_SLURM in rig.sh("ctl", f"sinfo -h -R -n {node} -o %E"):
            rig.sh("ctl", f"scontrol update NodeName={node} State=RESUME", check=False)
            time.sleep(1)
            continue
        if state and "drain" not in state and "down" not in state:
            return
        if "drain" in state or time.monotonic() > deadline:
            raise Violation(f"S10: {node} is {state or 'unknown'}")
        time.sleep(0.5)


def _down(node: str, daemon: str, seconds: float) -> Event:
    """Killed, and back after a while; `node` "" is the session's."""

    def happen(rig: Rig, ticker: Ticker) -> str:
        where = node or ticker.node
        if daemon == "slurmctld":
            # It may forget that the job was released: then Slurm ends what it finds of it.
            ticker.floor = ticker.saved
        rig.stop(where, daemon)
        time.sleep(seconds)
        rig.start(where, daemon)
        return ""

    return happen


def _power(rig: Rig, ticker: Ticker) -> str:
    """What ran is gone; the last checkpoint must not be."""
    ticker.floor = ticker.saved
    rig.away(ticker.node, "reclaim-agent", True)
    rig.lab("kill", ticker.node)
    time.sleep(2)
    rig.lab("boot", ticker.node)
    rig.away(ticker.node, "reclaim-agent", False)
    return ""


def _cable(seconds: float) -> Event:
    def happen(rig: Rig, ticker: Ticker) -> str:
        link = "$(ls /sys/class/net | grep -v lo | head -1)"
        rig.sh(ticker.node, f"ip link set {link} down")
        time.sleep(seconds)
        rig.sh(ticker.node, f"ip link set {link} up")
        return ""

    return happen


def _upgrade(rig: Rig, ticker: Ticker) -> str:
    """The order of docs/install.md: the controller first. Stopped programs can't end by SIGTERM."""
    rig.stop("ctl", "reclaimd", 15)
    rig.start("ctl", "reclaimd")
    return ""


def _scancel(rig: Rig, ticker: Ticker) -> str:
    rig.sh("ctl", f"scancel {ticker.job}", user="alice")
    return "ended"


def _requeue(rig: Rig, ticker: Ticker) -> str:
    """As preemption does it, too. Before the commit this ends what ran, by its owner's word."""
    ticker.floor = ticker.saved
    rig.sh("ctl", f"scontrol requeue {ticker.job}", user="alice", check=False)
    return ""


def _kill_one(pattern: str) -> Event:
    """One of our programs that belong to the job. Its processes end with it, in the kernel or by
    Slurm, so that before the commit this is the end of the job (`ENDS`)."""

    def happen(rig: Rig, ticker: Ticker) -> str:
        ticker.floor = ticker.saved
        rig.sh(ticker.node, f"kill -9 $(pgrep -f '{pattern.format(ticker.job)}' | head -1)")
        return ""

    return happen


EVENTS: dict[str, Event] = {
    "slurmctld dead for 4 s": _down("ctl", "slurmctld", 4),
    "slurmdbd dead for 4 s": _down("ctl", "slurmdbd", 4),
    "MariaDB dead for 4 s": _down("ctl", "mariadbd", 4),
    "munged of ctl dead for 4 s": _down("ctl", "munged", 4),
    "munged of the node dead for 4 s": _down("", "munged", 4),
    "slurmd of the node dead for 4 s": _down("", "slurmd", 4),
    "reclaimd dead for 12 s": _down("ctl", "reclaimd", 12),
    "reclaimd upgraded in place": _upgrade,
    "cable pulled for 4 s": _cable(4),
    "cable pulled for 15 s": _cable(15),
    "power failure of the node": _power,
    "scancel by the owner": _scancel,
    "scontrol requeue by the owner": _requeue,
    "kill -9 of reclaim-relay": _kill_one("^reclaim-relay {0} "),
    "kill -9 of reclaim-init": _kill_one("^reclaim-init --job {0} "),
}

# These may end a session that has no checkpoint of this run yet.
ENDS = frozenset({"kill -9 of reclaim-relay", "kill -9 of reclaim-init"})
# These are felt on all nodes, so that no other session may be at a point meanwhile.
FELT_BY_ALL = frozenset(
    name for name in EVENTS if name.startswith(("slurm", "MariaDB", "munged of ctl", "reclaimd"))
) - {"slurmd of the node dead for 4 s"}


def boot_if_off(rig: Rig) -> None:
    """Whatever a failed point has left."""
    for name in rig.nodes:
        try:
            if not rig.node(name).init():
                rig.lab("boot", name)
        except LabError:
            continue
