"""A lab as a whole: up, down, install, status; the order in which things happen."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from reclaim_lab import (
    accounting,
    cgroups,
    daemons,
    install,
    machine,
    network,
    node_tree,
    slurm_files,
    ssh,
)
from reclaim_lab.errors import LabError
from reclaim_lab.image import USERS
from reclaim_lab.node import Node
from reclaim_lab.node_tree import File, Tree
from reclaim_lab.places import CHECKOUT, LabPlaces, node_names, run_dir
from reclaim_lab.shell import say


@dataclass(frozen=True)
class Settings:
    nodes: int = 2
    gpus: int = 0


class Cluster:
    def __init__(self, name: str) -> None:
        self.places = LabPlaces(name)
        self._troubles: list[str] = []

    # --- what there is

    def settings(self) -> Settings:
        try:
            known = json.loads(self.places.settings.read_text())
        except FileNotFoundError:
            return Settings()
        return Settings(known["nodes"], known["gpus"])

    def node(self, name: str) -> Node:
        if name not in node_names(self.settings().nodes):
            names = ", ".join(node_names(self.settings().nodes))
            raise LabError(f"lab {self.places.name} has no node {name!r}; it has {names}")
        return Node(self.places, name)

    def nodes(self) -> list[Node]:
        return [Node(self.places, name) for name in node_names(self.settings().nodes)]

    def _recorded(self) -> list[Node]:
        """Every node that was ever started and not seen off, also ones no longer wanted."""
        return [Node(self.places, path.stem) for path in sorted(self.places.run.glob("*.json"))]

    # --- up and down

    def up(self, nodes: int | None, gpus: int | None) -> None:
        machine.check()
        before = self.settings()
        after = Settings(
            before.nodes if nodes is None else nodes, before.gpus if gpus is None else gpus
        )
        wanted = node_names(after.nodes)
        lowers = install.base_layers(after.gpus)
        tree = Tree(install.installed_layers(lowers, after.gpus), self._files(after))
        for node in self._recorded():
            # Layers and devices are given at boot; a node that is not wanted any more goes.
            if node.name not in wanted or not self._booted_with(node, lowers, after):
                say(f"rebooting {node.name}" if node.name in wanted else f"stopping {node.name}")
                node.kill()
        self.places.state.mkdir(parents=True, exist_ok=True)
        partial = self.places.settings.with_suffix(".new")
        partial.write_text(json.dumps(dataclasses.asdict(after)))
        partial.rename(self.places.settings)
        self._make_shared()
        network.create_switch(self.places)
        self._bring_up(self.nodes(), lowers, after, tree)
        self._wait_for_nodes(wanted[1:])
        self._tell_troubles()

    def boot(self, name: str) -> None:
        """Power back on: the image and configuration as they were, nothing reinstalled."""
        node = self.node(name)
        lowers = self._lowers_of(node)
        network.create_switch(self.places)
        self._bring_up([node], lowers, self.settings(), None)
        wanted = self.nodes() if name == "ctl" else [node]
        self._wait_for_nodes([each.name for each in wanted if each.name != "ctl" and each.init()])
        self._tell_troubles()

    def install(self) -> None:
        settings = self.settings()
        running = [node for node in self.nodes() if node.init()]
        if not running:
            raise LabError(f"lab {self.places.name} is not up")
        lowers = install.base_layers(settings.gpus)
        if not all(self._booted_with(node, lowers, settings) for node in running):
            raise LabError("the image changed (new dependencies?): run `lab up`, it reboots nodes")
        tree = Tree(install.installed_layers(lowers, settings.gpus), self._files(settings))
        self._bring_up(running, lowers, settings, tree)
        self._tell_troubles()

    def down(self, purge: bool) -> None:
        # Every node there is a trace of, on record or not: its boot may have been cut short.
        names = {*node_names(self.settings().nodes), *(node.name for node in self._recorded())}
        _each(lambda node: node.kill(), [Node(self.places, name) for name in sorted(names)])
        network.remove_switch(self.places)
        cgroups.remove(self.places.name)
        shutil.rmtree(self.places.run, ignore_errors=True)
        with contextlib.suppress(OSError):  # other labs are there
            run_dir().rmdir()
        if purge:
            shutil.rmtree(self.places.state, ignore_errors=True)

    # --- steps

    def _bring_up(
        self, nodes: list[Node], lowers: list[Path], settings: Settings, tree: Tree | None
    ) -> None:
        """Boot, lay the tree over the disk, start daemons: all nodes at once where order allows."""
        slurmctld_up = threading.Event()
        failed = threading.Event()
        if all(node.name != "ctl" for node in nodes):
            slurmctld_up.set()

        def bring_up(node: Node) -> None:
            try:
                was_up = node.init() is not None
                self._remember_lowers(node, lowers)
                node.boot(lowers, settings.gpus)
                changed = self._lay_over(node, tree) if tree else set()
                if was_up:
                    for daemon in daemons.touched_by(changed):
                        daemons.stop(node, daemon)
                self._start_daemons(node, slurmctld_up, failed)
            except BaseException:
                failed.set()
                slurmctld_up.set()
                raise

        _each(bring_up, nodes)

    def _lay_over(self, node: Node, tree: Tree) -> set[str]:
        return node_tree.apply(node, tree, install.left_out_on(node.name))

    def _start_daemons(
        self, node: Node, slurmctld_up: threading.Event, failed: threading.Event
    ) -> None:
        for daemon in daemons.DAEMONS:
            if not daemon.belongs_on(node):
                continue
            if daemon.name == "slurmd":
                slurmctld_up.wait()
                if failed.is_set():
                    return
            if daemon.name == "slurmctld":
                accounting.set_up(node, self.places.cluster_name)
                ssh.make_keys(node)
            try:
                if not daemons.start(node, daemon):
                    say(f"{daemon.name} is not started on {node.name}: its unit is not installed")
            except LabError as error:
                if daemon.argv:
                    raise
                # One of the project's: the rest of the lab is what its developer needs now.
                self._troubles.append(str(error))
            if daemon.name == "slurmctld":
                slurmctld_up.set()

    def _tell_troubles(self) -> None:
        if self._troubles:
            raise LabError("the lab is up, but " + "; ".join(self._troubles))

    def _wait_for_nodes(self, names: list[str], patience: float = 60.0) -> None:
        ctl = Node(self.places, "ctl")
        if ctl.init() is None or not daemons.pid_of(ctl, daemons.by_name("slurmctld")):
            return
        deadline = time.monotonic() + patience
        # Drained is what somebody asked for, and stays.
        fine = {"idle", "mixed", "allocated", "completing", "planned", "drained", "draining"}
        while True:
            said = ctl.ask(["sinfo", "-hN", "-p", "main", "-o", "%N %T"]) or ""
            states = dict(line.split() for line in said.splitlines() if line)
            late = [f"{name} is {states.get(name, 'unknown')}" for name in names
                    if states.get(name) not in fine]  # fmt: skip
            if not late:
                return
            if time.monotonic() > deadline:
                raise LabError(f"Slurm does not show all nodes ready: {', '.join(late)}")
            time.sleep(0.1)

    def _files(self, settings: Settings) -> dict[str, File]:
        def text(content: str, mode: int = 0o644) -> File:
            return File(content.encode(), mode)

        cluster = self.places.cluster_name
        return {
            "etc/hosts": text(slurm_files.hosts(settings.nodes)),
            "etc/resolv.conf": text("# No name server: nothing is reachable outside the lab.\n"),
            "etc/slurm/slurm.conf": text(
                slurm_files.slurm_conf(cluster, settings.nodes, settings.gpus)
            ),
            "etc/slurm/cgroup.conf": text(slurm_files.cgroup_conf(settings.gpus)),
            "etc/slurm/gres.conf": text(slurm_files.gres_conf(settings.gpus)),
            "etc/slurm/slurmdbd.conf": text(slurm_files.slurmdbd_conf(), 0o600),
            "etc/slurm/plugstack.conf": text("include /etc/slurm/plugstack.conf.d/*.conf\n"),
            "etc/slurm-reclaim/conf.d/lab.toml": text(install.SETTINGS),
            "etc/ssh/sshd_config.d/lab.conf": text(ssh.SERVER),
            "etc/ssh/ssh_config.d/lab.conf": text(ssh.CLIENT),
            "etc/pam.d/sshd": text(ssh.PAM),
            "etc/munge/munge.key": File(self._munge_key(), 0o400),
            "etc/slurm-reclaim/store.keys": File(self._store_keys(), 0o600),  # docs/install.md 5
        }

    def _store_keys(self) -> bytes:
        """As `reclaim key new` makes them, and as an admin would copy them to all nodes."""
        path = self.places.state / "store.keys"
        if not path.exists():
            sys.path.insert(0, str(CHECKOUT))
            from slurm_reclaim.model.storekey import SECRET_BYTES, StoreKey

            self.places.state.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            made = StoreKey(float(int(time.time())), secrets.token_bytes(SECRET_BYTES))
            path.write_text(f"{made.line()}\n")
        return path.read_bytes()

    def _munge_key(self) -> bytes:
        path = self.places.state / "munge.key"
        if not path.exists():
            self.places.state.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            path.write_bytes(secrets.token_bytes(1024))
        return path.read_bytes()

    def _make_shared(self) -> None:
        shared = self.places.shared
        for path, mode in ((shared, 0o755), (shared / "home", 0o755), (shared / "reclaim", 0o700)):
            path.mkdir(exist_ok=True)
            path.chmod(mode)
        (shared / "reclaim/.slurm-reclaim-store").touch()  # docs/install.md 5
        for user, uid in USERS.items():
            home = shared / "home" / user
            if not home.exists():
                home.mkdir(mode=0o700)
                os.chown(home, uid, uid)

    # --- what a node was booted with

    def _boot_record(self, node: Node) -> Path:
        return self.places.node_state(node.name) / "booted.json"

    def _remember_lowers(self, node: Node, lowers: list[Path]) -> None:
        path = self._boot_record(node)
        path.parent.mkdir(parents=True, exist_ok=True)
        gpus = self.settings().gpus
        path.write_text(json.dumps({"lowers": [str(p) for p in lowers], "gpus": gpus}))

    def _booted_with(self, node: Node, lowers: list[Path], settings: Settings) -> bool:
        if node.init() is None:
            return False
        try:
            known = json.loads(self._boot_record(node).read_text())
        except (OSError, ValueError):
            return False
        return bool(known == {"lowers": [str(p) for p in lowers], "gpus": settings.gpus})

    def _lowers_of(self, node: Node) -> list[Path]:
        try:
            known = json.loads(self._boot_record(node).read_text())
        except (OSError, ValueError) as error:
            raise LabError(f"{node.name} was never up: run `lab up` first") from error
        return [Path(path) for path in known["lowers"]]


def _each(act: Callable[[Node], None], nodes: Iterable[Node]) -> None:
    """On all nodes at once; the first error is raised when all are done."""
    listed = list(nodes)
    if not listed:
        return
    with ThreadPoolExecutor(max_workers=min(16, len(listed))) as pool:
        for done in [pool.submit(act, node) for node in listed]:
            done.result()
