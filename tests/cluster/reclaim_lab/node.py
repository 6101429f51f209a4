"""One node: power on, power failure, and running things on it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reclaim_lab import cgroups, network
from reclaim_lab import gpus as gpu_devices
from reclaim_lab.build_root import PATH
from reclaim_lab.errors import LabError
from reclaim_lab.node_boot import BootSpec
from reclaim_lab.places import LabPlaces
from reclaim_lab.process import Process
from reclaim_lab.shell import run, tail

# Joins the node's cgroups, then becomes what follows: entered processes belong to the node.
_JOIN = 'while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done; shift; exec "$@"'
_CARRIED = ("TERM", "COLORTERM", "COLUMNS", "LINES", "TZ")


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int
    home: str
    shell: str


class Node:
    def __init__(self, places: LabPlaces, name: str) -> None:
        self.places = places
        self.name = name
        self._record = places.run / f"{name}.json"

    # --- power

    def init(self) -> Process | None:
        """The node's PID 1 as this machine sees it; None while the node is down."""
        try:
            process = Process(**json.loads(self._record.read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return process if process.alive() else None

    def boot(self, lowers: Sequence[Path], gpus: int) -> None:
        if self.init():
            return
        disk = self.places.node_state(self.name)
        for part in ("upper", "work", "root"):
            (disk / part).mkdir(parents=True, exist_ok=True)
        self.places.run.mkdir(parents=True, exist_ok=True)
        self._kill_stray()
        network.plug_in(self.places, self.name)
        cgroups.remove(self.places.name, self.name)
        cgroups.create(self.places.name, self.name)
        spec = BootSpec(
            node=self.name,
            lowers=[str(path) for path in lowers],
            disk=str(disk),
            shared=str(self.places.shared),
            netns=str(network.NETNS_DIR / self.places.netns(self.name)),
            first_groups=cgroups.root_process_files(self.places.name, self.name),
            groups=cgroups.process_files(self.places.name, self.name),
            hierarchies=[dataclasses.astuple(h) for h in cgroups.hierarchies()],
            gpus=gpus,
            gpu_files=gpu_devices.device_files(gpus),
        )
        said = run(
            [sys.executable, "-s", "-m", "reclaim_lab.node_boot",
             json.dumps(dataclasses.asdict(spec))],
            doing=f"booting {self.name}",
        )  # fmt: skip
        process = Process.of(int(said))
        if process is None:
            raise LabError(f"{self.name} died as soon as it was up")
        cgroups.open_to_slurm(self.places.name, self.name)
        partial = self._record.with_suffix(".new")
        partial.write_text(json.dumps(dataclasses.asdict(process)))
        partial.rename(self._record)

    def kill(self) -> None:
        """A power failure: cable first, then everything at once."""
        process = self.init()
        network.cut_cable(self.places, self.name)
        if process and not process.kill():
            raise LabError(f"{self.name} (init {process.pid}) is still there 20 s after SIGKILL")
        self._kill_stray()
        self._record.unlink(missing_ok=True)
        network.unplug(self.places, self.name)
        cgroups.remove(self.places.name, self.name)

    def _kill_stray(self) -> None:
        """Of a boot that was cut short before its init was on record."""
        for pid in cgroups.processes(self.places.name, self.name):
            stray = Process.of(pid)
            if stray and pid != os.getpid():
                stray.kill()

    # --- running things on it

    def require(self) -> Process:
        process = self.init()
        if process is None:
            raise LabError(f"{self.name} is down: `lab boot {self.name}` or `lab up` brings it up")
        return process

    def path(self, inside: str) -> Path:
        """A path of the node as this machine can reach it. For reading only: a symlink in it
        would lead to the machine's own files."""
        return Path(f"/proc/{self.require().pid}/root{inside}")

    def read(self, inside: str) -> str:
        """The text of one of its files. Raises OSError."""
        return self.path(inside).read_text()

    def account(self, name: str) -> Account:
        for line in self.path("/etc/passwd").read_text().splitlines():
            fields = line.split(":")
            if fields[0] == name:
                return Account(name, int(fields[2]), int(fields[3]), fields[5], fields[6])
        raise LabError(f"{self.name} has no user {name!r}")

    def entering(
        self,
        argv: Sequence[str],
        *,
        user: str = "root",
        env: dict[str, str] | None = None,
        privileges: Sequence[str] = (),
    ) -> list[str]:
        """The command line that runs `argv` on the node as if logged in there."""
        pid = self.require().pid
        account = self.account(user)
        # Dies with the command that entered, so that a killed test leaves nothing running.
        become = ["setpriv", "--pdeathsig", "KILL"]
        if user != "root":
            become += ["--reuid", user, "--regid", str(account.gid), "--init-groups"]
        home = account.home if Path(f"/proc/{pid}/root{account.home}").is_dir() else "/"
        environment = {
            "PATH": PATH,
            "HOME": account.home,
            "USER": user,
            "LOGNAME": user,
            "SHELL": account.shell,
            "LANG": "C.UTF-8",
            **{key: os.environ[key] for key in _CARRIED if key in os.environ},
            **(env or {}),
        }
        return [
            "sh", "-c", _JOIN, "sh",
            *cgroups.process_files(self.places.name, self.name), "--",
            # With the root of the node's init, too: by no chance may this be the machine's.
            "nsenter", "-t", str(pid), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "--",
            *become, *privileges, "--",
            "env", "-i", "-C", home, *(f"{key}={value}" for key, value in environment.items()),
            *argv,
        ]  # fmt: skip

    def run(
        self, argv: Sequence[str], *, doing: str, user: str = "root", text_in: str | None = None
    ) -> str:
        return run(self.entering(argv, user=user), doing=doing, text_in=text_in)

    def ask(self, argv: Sequence[str], timeout: float = 10.0) -> str | None:
        """Stdout where it worked, None where it did not: for waiting until something does."""
        try:
            done = subprocess.run(
                self.entering(argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            return None
        return done.stdout if done.returncode == 0 else None

    def log_tail(self, path: str, lines: int = 6) -> str:
        try:
            return tail(self.path(path).read_text(errors="replace"), lines)
        except OSError:
            return "(no log)"
