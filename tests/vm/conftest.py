"""The fixture `lab`: the machines of tests/vm/vm, with what tests know of a lab."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from reclaim_vm.machine import Machine
from reclaim_vm.places import NODES, Places

from tests.cluster.conftest import Lab

# Where no KVM is to be had everything takes ten times as long, and is not what is tested.
PATIENCE = float(os.environ.get("RECLAIM_VM_PATIENCE", "8"))


class Machines(Lab):
    program = Path(__file__).with_name("vm")

    def _entering(self, node: str, user: str, command: Sequence[str]) -> list[str]:
        return Machine(Places(self.name), node).entering(command, user=user)

    def exec(self, node: str, *command: str, timeout: float = 120, **more):
        return super().exec(node, *command, timeout=timeout * PATIENCE, **more)

    def wait(self, what: str, seen: Callable[[], object], patience: float = 30.0) -> object:
        return super().wait(what, seen, patience * PATIENCE)

    def tails(self, lines: int = 25) -> list[tuple[str, str]]:
        found = []
        for node in NODES:
            for unit in ("reclaimd", "slurmctld") if node == "ctl" else ("reclaim-agent", "slurmd"):
                words = [
                    "journalctl",
                    "-q",
                    "--no-pager",
                    "-o",
                    "cat",
                    "-n",
                    str(lines),
                    "-u",
                    unit,
                ]
                done = self.exec(node, *words, check=False)
                found.append((f"{node} {unit}", done.stdout or done.stderr))
        return found


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Brought up and down, or left up where it was. RECLAIM_VM=installed: what is installed there
    is tested, and not this checkout."""
    if "RECLAIM_VM" not in os.environ:
        pytest.skip("make vm")
    machines = Machines(os.environ.get("RECLAIM_VM_NAME", "vm"))
    # By their QEMUs: a daemon that an interrupted run left stopped is no reason to power them off.
    found_up = any(Machine(Places(machines.name), node).process() for node in NODES)
    try:
        if not machines.is_up() or os.environ["RECLAIM_VM"] != "installed":
            machines.up()
        yield machines
    finally:
        machines.close()
        if not found_up:
            machines.down(purge=False)


@pytest.fixture
def counter(lab: Lab) -> Iterator[Callable[..., object]]:
    """Start small sessions (tests.cluster.sessions.Counter), cancelled at the end of the test."""
    from tests.cluster.sessions import Counter  # which needs Lab

    started: list[Counter] = []

    def start(*options: str, **more: object) -> Counter:
        started.append(Counter.start(lab, *options, **more))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for one in started:
        one.cancel()
