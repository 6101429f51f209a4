"""Every node's own cgroup in each hierarchy of the machine, whichever version it has.

A node is shown its cgroup as the root (cgroup namespace), so that two labs whose nodes have the
same names do not meet in Slurm's `slurm_n1`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reclaim_lab.errors import LabError

MOUNT = Path("/sys/fs/cgroup")
PARENT = "slurm-reclaim-lab"


@dataclass(frozen=True)
class Hierarchy:
    mount_point: str
    fstype: str
    """cgroup (v1) or cgroup2"""
    options: str
    """For mounting it again: the v1 controllers."""

    @property
    def controllers(self) -> list[str]:
        """What a v2 hierarchy hands down; none on hybrid machines, where v1 has what Slurm needs
        and v2 at most a left-over."""
        path = Path(self.mount_point, "cgroup.controllers")
        found = path.read_text().split() if self.fstype == "cgroup2" and path.exists() else []
        return found if "memory" in found else []

    def of(self, lab: str, node: str) -> Path:
        return Path(self.mount_point, PARENT, lab, node)

    def for_processes(self, lab: str, node: str) -> Path:
        """v2 allows no processes beside child groups: those of the node sit in a leaf."""
        group = self.of(lab, node)
        return group / "init.scope" if self.controllers else group


def hierarchies() -> list[Hierarchy]:
    found: list[Hierarchy] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ")
        mount_point = before.split()[4]
        fstype, _, options = after.split()[:3]
        if fstype not in ("cgroup", "cgroup2"):
            continue
        if mount_point != str(MOUNT) and not mount_point.startswith(f"{MOUNT}/"):
            continue
        kept = [o for o in options.split(",") if o not in ("rw", "ro", "xattr", "clone_children")
                and not o.startswith("release_agent=")]  # fmt: skip
        found.append(Hierarchy(mount_point, fstype, ",".join(kept) if fstype == "cgroup" else ""))
    if not found:
        raise LabError(f"no cgroup hierarchy is mounted below {MOUNT}")
    return found


def version() -> int:
    """1 where the memory controller is a v1 one (also on hybrid machines)."""
    v1 = {o for h in hierarchies() if h.fstype == "cgroup" for o in h.options.split(",")}
    v2 = {c for h in hierarchies() for c in h.controllers}
    if {"memory", "cpuset", "freezer", "cpuacct"} <= v1:
        return 1
    if {"memory", "cpuset", "cpu"} <= v2:
        return 2
    raise LabError("Slurm needs the memory, cpuset and cpu controllers, and they are not mounted")


def swap_is_counted() -> bool:
    """Without it Slurm can't hold a job to its memory on a machine with swap, and must not try."""
    if version() == 1:
        return (MOUNT / "memory/memory.memsw.limit_in_bytes").exists()
    unified = [Path(h.mount_point) for h in hierarchies() if h.controllers]
    return any(list(top.glob("*/memory.swap.max")) for top in unified)


def create(lab: str, node: str) -> None:
    for hierarchy in hierarchies():
        _hand_down(hierarchy, Path(hierarchy.mount_point))
        group = hierarchy.of(lab, node)
        for each in (group.parent.parent, group.parent, group):
            each.mkdir(exist_ok=True)
            _fill_cpuset(each)
            if each != group:
                _hand_down(hierarchy, each)
        hierarchy.for_processes(lab, node).mkdir(exist_ok=True)


def open_to_slurm(lab: str, node: str) -> None:
    """Once the node's own processes sit in their leaf: a group with both is not allowed."""
    for hierarchy in hierarchies():
        _hand_down(hierarchy, hierarchy.of(lab, node))


def _hand_down(hierarchy: Hierarchy, group: Path) -> None:
    for controller in hierarchy.controllers:
        try:
            (group / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError as error:
            if controller in ("memory", "cpuset", "cpu"):
                raise LabError(
                    f"cgroup controller {controller} can't be handed down from {group}: "
                    f"{error.strerror}"
                ) from error


def _fill_cpuset(group: Path) -> None:
    """A v1 cpuset starts empty and takes no process until it is filled."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        path = group / name
        if path.exists() and not path.read_text().strip() and (group.parent / name).exists():
            path.write_text((group.parent / name).read_text())


def process_files(lab: str, node: str) -> list[str]:
    """Write a pid to each of these and the process belongs to the node."""
    return [str(h.for_processes(lab, node) / "cgroup.procs") for h in hierarchies()]


def root_process_files(lab: str, node: str) -> list[str]:
    """The same for the moment at which the cgroup namespace takes its root."""
    return [str(h.of(lab, node) / "cgroup.procs") for h in hierarchies()]


def processes(lab: str, node: str | None = None) -> set[int]:
    """Whatever lives in the lab's groups; nothing but its own can get there."""
    found: set[int] = set()
    for hierarchy in hierarchies():
        top = Path(hierarchy.mount_point, PARENT, lab, *([node] if node else []))
        for group in _bottom_up(top):
            with contextlib.suppress(OSError):
                found.update(map(int, (group / "cgroup.procs").read_text().split()))
    return found - {0}


def _bottom_up(top: Path) -> Iterator[Path]:
    for directory, _, _ in os.walk(top, topdown=False):
        yield Path(directory)


def remove(lab: str, node: str | None = None, patience: float = 5.0) -> None:
    """Of one node or the whole lab. The last processes may need a moment to be gone."""
    for hierarchy in hierarchies():
        top = Path(hierarchy.mount_point, PARENT, lab, *([node] if node else []))
        deadline = time.monotonic() + patience
        while top.exists():
            for group in _bottom_up(top):
                try:
                    group.rmdir()
                except FileNotFoundError:
                    pass
                except OSError:
                    break  # still populated
            if time.monotonic() > deadline:
                raise LabError(f"cgroup {top} still holds processes: see cgroup.procs below it")
            if top.exists():
                time.sleep(0.05)
        if node is None:
            with contextlib.suppress(OSError):  # another lab's are there
                top.parent.rmdir()
