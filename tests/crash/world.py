"""What happens around us: nodes, Slurm's daemons, accounts and owners, at a moment that is held."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.crash import clocks, slurm_events, upgrade
from tests.crash.rig import OF_SLURM, LabError, Rig
from tests.crash.session import Ticker, Violation

Event = Callable[[Rig, Ticker], str]
"""Gives "ended" where it ends the session by itself, else ""."""


TIME_LIMIT = "the time limit is reached"
UPGRADED_CTL = "reclaimd upgraded in place"
UPGRADED_HELD = "reclaimd upgraded, the old one held"
UPGRADED_NODE = "reclaim-agent upgraded in place"
UPGRADED_ALL = "reclaimd and reclaim-agent upgraded"
AT_STORE = "kill -9 of the program at the store"


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


def _kill_agent(rig: Rig, ticker: Ticker) -> str:
    """While another program is held at a call; the rig starts the next one."""
    rig.signal(ticker.node, "reclaim-agent", 9)
    return ""


def _kill_at_store(rig: Rig, ticker: Ticker) -> str:
    """What takes CRIU's images in, or gives them out: it finds its pipes broken, and lets go."""
    pattern = "adapters[.]store[.](capture|serve) import"
    rig.sh(ticker.node, f"pkill -9 -f '{pattern}'", check=False)
    return ""


def _hold(rig: Rig, ticker: Ticker) -> str:
    """Longer than an object store may take (store.remote_timeout of the lab)."""
    time.sleep(25)
    return ""


def _upgrade_ctl(rig: Rig, ticker: Ticker) -> str:
    """The order of docs/install.md: the controller first."""
    rig.stop("ctl", "reclaimd", 15)
    upgrade.replace(rig, "ctl")
    rig.start("ctl", "reclaimd")
    return ""


def _upgrade_held(rig: Rig, ticker: Ticker) -> str:
    """The old one stands at a call, and ends at once when it is let go; the rig starts the next."""
    upgrade.replace(rig, "ctl")
    rig.signal("ctl", "reclaimd", 15)
    return ""


def _upgrade_node(rig: Rig, ticker: Ticker) -> str:
    """Where it is held at a call it sees the signal when it is let go, else at once; the rig starts
    the next one."""
    upgrade.replace(rig, ticker.node)
    rig.signal(ticker.node, "reclaim-agent", 15)
    return ""


def _upgrade_all(rig: Rig, ticker: Ticker) -> str:
    _upgrade_ctl(rig, ticker)
    return _upgrade_node(rig, ticker)


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
    UPGRADED_CTL: _upgrade_ctl,
    UPGRADED_HELD: _upgrade_held,
    UPGRADED_NODE: _upgrade_node,
    UPGRADED_ALL: _upgrade_all,
    "reclaim-agent killed": _kill_agent,
    "held for 25 s": _hold,
    AT_STORE: _kill_at_store,
    "cable pulled for 4 s": _cable(4),
    "cable pulled for 15 s": _cable(15),
    "power failure of the node": _power,
    "scancel by the owner": slurm_events.scancel,
    "scancel by an administrator": slurm_events.scancel_by_admin,
    "scontrol requeue by the owner": slurm_events.requeue,
    "scontrol requeue by an administrator": slurm_events.requeue_by_admin,
    "scontrol requeuehold by an admin": slurm_events.requeuehold_by_admin,
    "preempted": slurm_events.preempted,
    TIME_LIMIT: slurm_events.time_limit,
    "kill -9 of reclaim-relay": _kill_one("^reclaim-relay {0} "),
    "kill -9 of reclaim-init": _kill_one("^reclaim-init --job {0} "),
    **{name: event for name, (_, event) in clocks.STEPS.items()},
}

# These may end a session that has no checkpoint of this run yet.
ENDS = frozenset({"kill -9 of reclaim-relay", "kill -9 of reclaim-init", TIME_LIMIT})
# These are felt on all nodes, so that no other session may be at a point meanwhile.
FELT_BY_ALL = frozenset(
    name
    for name in EVENTS
    if name.startswith(("slurm", "MariaDB", "munged of ctl", "reclaimd", "ctl's", "all clocks"))
) - {"slurmd of the node dead for 4 s"}

# While one of the others is held: those at the agent's calls are among EVENTS.
UPGRADES = {
    "criu": (UPGRADED_CTL, UPGRADED_NODE, UPGRADED_ALL),
    "reclaimd": (UPGRADED_HELD, UPGRADED_NODE),
    "reclaim": (UPGRADED_CTL, UPGRADED_NODE),
}
# While the object store holds a request.
REMOTE_EVENTS = (
    "reclaim-agent killed",
    UPGRADED_NODE,
    "reclaimd dead for 12 s",
    "power failure of the node",
    "scontrol requeue by the owner",
    "held for 25 s",
)


def put_right(rig: Rig, ticker: Ticker, event: str) -> None:
    """What an event has left behind and the next point must not find."""
    if event in clocks.STEPS:
        clocks.right_again(rig, ticker.node, clocks.STEPS[event][0])
    elif event == TIME_LIMIT:
        slurm_events.limit_lifted(rig, ticker)


def boot_if_off(rig: Rig) -> None:
    """Whatever a failed point has left."""
    for name in rig.nodes:
        try:
            if not rig.node(name).init():
                rig.lab("boot", name)
        except LabError:
            continue
