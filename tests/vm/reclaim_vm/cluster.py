"""The cluster of machines as a whole: up, down, install, status."""

from __future__ import annotations

import dataclasses
import json
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reclaim_lab import accounting, install, ssh
from reclaim_lab.daemons import touched_by
from reclaim_lab.errors import LabError
from reclaim_lab.image import USERS
from reclaim_lab.node_tree import Tree, apply
from reclaim_lab.places import CHECKOUT
from reclaim_lab.shell import say
from reclaim_vm import files, image, network
from reclaim_vm.machine import Hardware, Machine, make_key
from reclaim_vm.places import NODES, Places

UNITS = {
    "ctl": ("nfs-server", "munge", "mariadb", "slurmdbd", "slurmctld", "reclaimd"),
    "n": ("munge", "ssh", "slurmd", "reclaim-agent"),
}


def units_of(node: str) -> tuple[str, ...]:
    return UNITS["ctl" if node == "ctl" else "n"]


class Cluster:
    def __init__(self, name: str) -> None:
        self.places = Places(name)

    def machine(self, name: str) -> Machine:
        if name not in NODES:
            raise LabError(f"there is no machine {name!r}; there are {', '.join(NODES)}")
        return Machine(self.places, name)

    def machines(self) -> list[Machine]:
        return [Machine(self.places, name) for name in NODES]

    # --- up and down

    def up(self, changes: dict[str, str]) -> None:
        """`changes`: of the hardware of machines that are not up, for good."""
        disk = image.ready()
        self._start_over_on_a_new_image(disk)
        make_key(self.places)
        network.create(self.places)
        for machine in self.machines():
            if machine.process() is None:
                self._remember(machine.name, changes)
        _each(lambda machine: machine.boot(disk, self.hardware(machine.name)), self.machines())
        self.install()

    def boot(self, name: str, changes: dict[str, str]) -> None:
        """Power back on, with the hardware as it was but for `changes`."""
        machine = self.machine(name)
        disk = image.ready()
        network.create(self.places)
        self._remember(name, changes)
        machine.boot(disk, self.hardware(name))

    def install(self) -> None:
        """This checkout and the configuration onto all machines that are up. What runs and has
        not changed goes on."""
        layers = install.installed_layers(install.base_layers(0), 0)
        every = self._files()
        changed: dict[str, set[str]] = {}

        def lay_over(machine: Machine) -> None:
            out = files.left_out_on(machine.name)
            kept = {name: file for name, file in every.items() if name not in out}
            changed[machine.name] = apply(machine, Tree(layers, kept), out)  # type: ignore[arg-type]

        up = [machine for machine in self.machines() if machine.process()]
        _each(lay_over, up)
        for machine in up:
            if machine.name == "ctl":
                self._start_controller(machine, changed["ctl"])
        nodes = [machine for machine in up if machine.name != "ctl"]
        _each(lambda machine: self._start_node(machine, changed[machine.name]), nodes)
        self._wait_for_nodes([machine.name for machine in nodes])

    def _start_controller(self, ctl: Machine, changed: set[str]) -> None:
        script = _stop(ctl, changed) + files.CTL.format(users=" ".join(USERS))
        ctl.run(["sh", "-c", script], doing="setting up ctl")
        accounting.set_up(ctl, self.places.cluster_name)  # type: ignore[arg-type]
        ssh.make_keys(ctl)  # type: ignore[arg-type]
        ctl.run(["sh", "-c", files.CTL_SLURM], doing="starting slurmctld and reclaimd")

    def _start_node(self, node: Machine, changed: set[str]) -> None:
        script = _stop(node, changed) + files.COMPUTE_NODE
        node.run(["sh", "-c", script], doing=f"starting {node.name}")

    def down(self, purge: bool) -> None:
        _each(lambda machine: machine.kill(), self.machines())
        network.remove(self.places)
        shutil.rmtree(self.places.run, ignore_errors=True)
        if purge:
            shutil.rmtree(self.places.state, ignore_errors=True)

    # --- parts

    def _start_over_on_a_new_image(self, disk: image.Image) -> None:
        """A disk is what was changed over the image: over another it would be nonsense."""
        record = self.places.state / "image"
        if record.exists() and record.read_text() != str(disk.disk):
            say("the image changed: the machines start over")
            self.down(purge=True)
        self.places.state.mkdir(parents=True, exist_ok=True)
        record.write_text(str(disk.disk))

    def _record(self, name: str) -> Path:
        return self.places.state / f"{name}.hardware"

    def hardware(self, name: str) -> Hardware:
        try:
            return Hardware(**json.loads(self._record(name).read_text()))
        except FileNotFoundError:
            return Hardware()

    def _remember(self, name: str, changes: dict[str, str]) -> None:
        known = dataclasses.asdict(self.hardware(name))
        for key, value in changes.items():
            known[key] = type(known[key])(value)
        self._record(name).write_text(json.dumps(known))

    def _files(self) -> dict:
        return files.all_files(
            self.places.cluster_name,
            self._secret("munge.key", lambda: secrets.token_bytes(1024)),
            self._secret("store.keys", _store_key),
        )

    def _secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        path = self.places.state / name
        if not path.exists():
            path.touch(0o600)
            path.write_bytes(make())
        return path.read_bytes()

    def _wait_for_nodes(self, names: list[str], patience: float = 90.0) -> None:
        ctl = self.machine("ctl")
        if ctl.process() is None:
            return
        deadline = time.monotonic() + patience
        while True:
            said = ctl.ask(["sinfo", "-hN", "-p", "main", "-o", "%N %T"]) or ""
            states = dict(line.split() for line in said.splitlines() if line)
            fine = ("idle", "mixed", "allocated", "completing", "planned", "drained", "draining")
            late = [f"{name} is {states.get(name, 'unknown')}" for name in names
                    if states.get(name) not in fine]  # fmt: skip
            if not late:
                return
            if time.monotonic() > deadline:
                raise LabError(f"Slurm does not show all nodes ready: {', '.join(late)}")
            time.sleep(0.5)

    def status(self) -> tuple[bool, list[str]]:
        """Whether all that should run runs, and a line for each machine."""
        fine, lines = True, []
        for machine in self.machines():
            process = machine.process()
            if process is None:
                fine = False
                lines.append(f"{machine.name:4} down")
                continue
            units = units_of(machine.name)
            said = machine.ask(["sh", "-c", f"systemctl is-active {' '.join(units)} || :"]) or ""
            states = dict(zip(units, said.split(), strict=False))
            fine = fine and all(states.get(unit) == "active" for unit in units)
            shown = "  ".join(f"{unit} {states.get(unit, 'unknown')}" for unit in units)
            lines.append(f"{machine.name:4} up (QEMU {process.pid})  {shown}")
        return fine, lines


def _stop(machine: Machine, changed: set[str]) -> str:
    """A line that stops what has to be started anew when these files were changed."""
    touched = {each.name for each in touched_by(changed)}
    stale = [unit for unit in units_of(machine.name) if unit in touched]
    return f"systemctl stop {' '.join(stale)} || :\n" if stale else ""


def _store_key() -> bytes:
    sys.path.insert(0, str(CHECKOUT))
    from slurm_reclaim.model.storekey import SECRET_BYTES, StoreKey

    made = StoreKey(float(int(time.time())), secrets.token_bytes(SECRET_BYTES))
    return f"{made.line()}\n".encode()


def _each(act: Callable[[Machine], object], machines: Iterable[Machine]) -> None:
    """On all at once; the first error is raised when all are done."""
    listed = list(machines)
    if listed:
        with ThreadPoolExecutor(len(listed)) as pool:
            for done in [pool.submit(act, machine) for machine in listed]:
                done.result()
