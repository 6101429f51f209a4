"""A lab whose daemons and CRIU run under the library of faults, and are started again when they
end, as systemd would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CLUSTER = HERE.parent / "cluster"
sys.path.insert(0, str(CLUSTER))

from reclaim_lab import daemons  # noqa: E402
from reclaim_lab.cluster import Cluster  # noqa: E402
from reclaim_lab.errors import LabError  # noqa: E402
from reclaim_lab.node import Node  # noqa: E402

from tests.crash import upgrade  # noqa: E402
from tests.crash.control import Control  # noqa: E402

ALSO = (
    CLUSTER / "inside" / "gpu_now.py",
    HERE / "control.py",
    HERE.parent / "parts" / "store" / "bucket.py",
)
PLACE = "/shared/crash"  # the same file on all nodes and, under the lab's state, on this machine
SLURM_CONF = "/etc/slurm/slurm.conf"
BEGIN, END = "# Of the crash matrix.", "# Until here."
DROP_IN = "/etc/slurm-reclaim/conf.d/zz-crash.toml"
RETENTION_DROP_IN = "/etc/slurm-reclaim/conf.d/zz-crash-retention.toml"
# The idle clock is left far away: only retention acts.
RETENTION = """mode = "prod"
[idle]
window = "10h"
[retention]
interval = "{interval}"
least = "0s"
ended = "10h"
hibernated = "0s"
per_session = {per_session}
"""


ON_CTL, ON_NODES = ("reclaimd", "reclaim", "asker"), ("reclaim-agent", "criu")


class Rig:
    """`gpu`: the sessions have a (simulated) card each, in a lab with `--gpus`."""

    def __init__(self, name: str, gpu: bool = False) -> None:
        self.name = name
        self.gpu = gpu
        self.remote = ""  # "before" or "after" while an object store is in use (remote.py)
        self.cluster = Cluster(name)
        self.shared = self.cluster.places.shared
        self.place = self.shared / "crash"
        self.nodes = [node.name for node in self.cluster.nodes() if node.name != "ctl"]
        self._controls: dict[str, Control] = {}
        self._away: set[tuple[str, str]] = set()
        self._stopping = threading.Event()
        self._guard = threading.Thread(target=self._keep_up, daemon=True)
        self._asker: Asker | None = None
        self._retention = ""
        self.timers: dict[str, list[threading.Timer]] = {}

    # -- set up -------------------------------------------------------------------------------

    def lab(self, *words: str) -> str:
        argv = [str(CLUSTER / "lab"), "--name", self.name, *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise LabError(f"lab {' '.join(words)}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def install(self) -> None:
        self.place.mkdir(exist_ok=True)
        build = ["make", "-s", "-C", str(HERE), f"BUILD={self.place}"]
        subprocess.run(build, check=True)
        for source in (*(HERE / "inside").glob("*.py"), *ALSO):
            (self.place / source.name).write_bytes(source.read_bytes())
            (self.place / source.name).chmod(0o644)
        lines = f"{BEGIN}\nPreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
        for name in self.nodes:
            lines += f"PartitionName=of-{name} Nodes={name}\n"
            lines += f"PartitionName=first-on-{name} Nodes={name} PriorityTier=10\n"
        lines += END
        for name in ("ctl", *self.nodes):
            self.sh(name, f"grep -q of-n1 {SLURM_CONF} || printf '%s\n' '{lines}' >>{SLURM_CONF}")
        self.sh("ctl", "scontrol reconfigure")
        self.put_clocks(("ctl", *self.nodes), 0)
        for name in ("ctl", *self.nodes):
            self._install_on(name)
        self._guard.start()

    def _install_on(self, name: str) -> None:
        daemon = "reclaimd" if name == "ctl" else "reclaim-agent"
        self.control(daemon, name).disarm()
        self.control("criu", name).disarm()
        self.control("reclaim", "ctl").disarm()
        preload = f"LD_PRELOAD={PLACE}/faults.so"
        line = f"Environment={preload} FAULTS={PLACE}/{daemon}-{name}"
        unit = f"/etc/systemd/system/{daemon}.service"
        script = f"""set -eu
        grep -q LD_PRELOAD {unit} || sed -i 's|^\\[Service\\]$|&\\n{line}|' {unit}
        rm -f {RETENTION_DROP_IN}
        mkdir -p /opt/crash
        printf '#!/bin/sh\\n{preload} FAULTS={PLACE}/criu-{name} exec /usr/sbin/criu "$@"\\n' \\
            >/opt/crash/criu
        chmod 755 /opt/crash/criu
        printf '[agent]\\ncriu = "/opt/crash/criu"\\n' >{DROP_IN}
        """
        self.sh(name, script)
        upgrade.prepare(self, name)
        node = self.node(name)
        # One that a run before has left may be stopped.
        daemons.stop(node, daemons.by_name(daemon), signal.SIGKILL)
        daemons.start(node, daemons.by_name(daemon))

    def uninstall(self) -> None:
        self._stopping.set()
        if self._asker:
            self._asker.close()
        for name in ("ctl", *self.nodes):
            if not self.node(name).init():
                continue
            daemon = "reclaimd" if name == "ctl" else "reclaim-agent"
            unit = f"/etc/systemd/system/{daemon}.service"
            self.sh(name, f"rm -f {DROP_IN} {RETENTION_DROP_IN}; sed -i /LD_PRELOAD/d {unit}")
            self.sh(name, f"sed -i '/^{BEGIN}/,/^{END}/d' {SLURM_CONF}")
            upgrade.put_back(self, name)
            node = self.node(name)
            daemons.stop(node, daemons.by_name(daemon), signal.SIGKILL)
            daemons.start(node, daemons.by_name(daemon))
        self.sh("ctl", "scontrol reconfigure", check=False)

    def control(self, program: str, node: str) -> Control:
        key = f"{program}-{node}"
        if key not in self._controls:
            self._controls[key] = Control(self.place / key)
        return self._controls[key]

    def set_retention(self, text: str) -> None:
        """In force from now on; "" for the lab's own."""
        if text == self._retention:
            return
        self._retention = text
        path = RETENTION_DROP_IN
        self.sh("ctl", f"printf '%s' '{text}' >{path}; chmod 644 {path}")
        self.signal("ctl", "reclaimd", 1)

    def put_clocks(self, hosts: Iterable[str], seconds: int) -> None:
        """The wall clocks of our programs there, so far ahead of the right time."""
        for host in hosts:
            programs = ON_CTL if host == "ctl" else ON_NODES
            for program in programs:
                self.control(program, host).skew = seconds

    def disarm(self) -> None:
        for control in self._controls.values():
            control.disarm()

    # -- nodes --------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        return self.cluster.node(name)

    def sh(self, name: str, script: str, user: str = "root", check: bool = True) -> str:
        """What a shell on the node prints."""
        done = subprocess.run(
            self.node(name).entering(["sh", "-c", script], user=user),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise LabError(f"{name}: {script!r} exited {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def ask(self, line: str) -> Any:
        """reclaimd's answer; {"error": ...} where there is none."""
        if self._asker is None:
            self._asker = Asker(self)
        return self._asker.ask(line)

    # -- systemd's part -----------------------------------------------------------------------

    def _keep_up(self) -> None:
        while not self._stopping.wait(0.1):
            for name, daemon in self.should_run():
                if (name, daemon) in self._away:
                    continue
                try:
                    node = self.node(name)
                    if node.init() and not daemons.pid_of(node, daemons.by_name(daemon)):
                        daemons.start(node, daemons.by_name(daemon))
                except (LabError, OSError):
                    continue  # next time

    def should_run(self) -> list[tuple[str, str]]:
        return [("ctl", "reclaimd"), *((name, "reclaim-agent") for name in self.nodes)]

    def away(self, name: str, daemon: str, away: bool) -> None:
        """Whether the daemon is left alone while it is down."""
        (self._away.add if away else self._away.discard)((name, daemon))

    def all_away(self, away: bool) -> None:
        """Whether somebody else starts and stops the daemons."""
        for name, daemon in self.should_run():
            self.away(name, daemon, away)

    def stop(self, name: str, daemon: str, how: int = 9) -> None:
        """It stays away until `start`."""
        self.away(name, daemon, True)
        self.signal(name, daemon, how)

    def signal(self, name: str, daemon: str, how: int) -> None:
        pid = daemons.pid_of(self.node(name), daemons.by_name(daemon))
        if pid is not None:
            self.sh(name, f"kill -{how} {pid}", check=False)

    def start(self, name: str, daemon: str) -> None:
        for attempt in range(5):
            try:
                daemons.start(self.node(name), daemons.by_name(daemon))
                break
            except LabError:
                if attempt == 4:
                    raise
                time.sleep(1)
        self.away(name, daemon, False)


class Asker:
    """inside/asker.py on ctl, as root."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        # It lives by the clock of its host; its calls are none of the matrix's.
        faults = [f"LD_PRELOAD={PLACE}/faults.so", f"FAULTS={PLACE}/asker-ctl"]
        self._rig.control("asker", "ctl").disarm()
        argv = ["env", *faults, "/opt/slurm-reclaim/bin/python3", f"{PLACE}/asker.py"]
        return subprocess.Popen(
            self._rig.node("ctl").entering(argv),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, line: str) -> Any:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = self._start()
            assert self._process.stdin
            assert self._process.stdout
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            said = self._process.stdout.readline()
        return json.loads(said) if said else {"error": "the asker is gone"}

    def close(self) -> None:
        if self._process:
            self._process.kill()


def lab_name() -> str:
    return os.environ.get("RECLAIM_TEST_LAB", "test")
