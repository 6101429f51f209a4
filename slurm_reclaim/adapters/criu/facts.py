"""What this node has, as the agent reports it: for fit, and for `reclaim check`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import sh

from slurm_reclaim import __version__
from slurm_reclaim.adapters.criu import look, processor
from slurm_reclaim.adapters.criu.description import criu_version
from slurm_reclaim.adapters.gpu.cards import NodeGpus
from slurm_reclaim.adapters.proc import filesystems
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.errors import IntegrityError, StoreUnavailable
from slurm_reclaim.model.order import NodeFacts
from slurm_reclaim.ports import NodeStore

# 4.2.1 closes CVE-2026-18107: a dumped process could hijack CRIU through rseq
CRIU_FLOOR = (4, 2, 1)


def parse_version(text: str) -> tuple[int, ...]:
    """`4.2.1` -> (4, 2, 1); what is no number ends it."""
    numbers: list[int] = []
    for word in text.split("-")[0].split("."):
        if not word.isdigit():
            break
        numbers.append(int(word))
    return tuple(numbers)


def criu_problem(criu: str) -> str:
    """Why CRIU can't be used here; empty if it can."""
    version = criu_version(criu)
    if not version:
        return f"{criu} can't be run"
    if parse_version(version) < CRIU_FLOOR:
        floor = ".".join(map(str, CRIU_FLOOR))
        return f"CRIU {version} is older than {floor} (CVE-2026-18107)"
    try:
        sh.Command(criu)("check", "--unprivileged", _env={"PATH": "/usr/sbin:/usr/bin"})
    except sh.ErrorReturnCode as error:
        text = (error.stdout + error.stderr).decode(errors="replace").strip()
        return f"criu check: {text.splitlines()[-1] if text else 'failed'}"
    return ""


def _io_uring_disabled() -> int:
    try:
        return int(Path("/proc/sys/kernel/io_uring_disabled").read_text())
    except (OSError, ValueError):
        return -1


@dataclass(frozen=True, slots=True)
class Libc:
    """The C library of the node, the one that the agent itself runs with; all "" where it is not
    the GNU one."""

    path: str = ""
    version: str = ""
    build_id: str = ""


def libc() -> Libc:
    """A package that is upgraded while the agent runs shows at its next start, or earlier: at the
    restore, where every mapped file is looked at."""
    try:
        version = (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ")
        maps = Path("/proc/self/maps").read_text(errors="replace")
        found = re.search(r"\s(/\S*/libc[.-]\S*so\S*)$", maps, re.MULTILINE)
        if not version or found is None:
            return Libc()
        with open(found[1], "rb") as file:
            return Libc(found[1], version, look.build_id(file.fileno()))
    except (OSError, ValueError):
        return Libc()


class FactFinder:
    """CRIU and the C library are asked once per agent start; the store each time."""

    def __init__(
        self,
        criu: str,
        store: NodeStore,
        keys: KeyFile,
        config_digest: str,
        plugin_problem: Callable[[], str],
        store_orders: Callable[[], bool] = lambda: True,
        gpus: Callable[[], NodeGpus] = NodeGpus,
    ) -> None:
        """`plugin_problem`: why the plugin does not work here, "" where nothing is known of that.
        `store_orders`: whether orders about the store can be carried out here now. `gpus`: what
        GPUs the node has; it must not take long."""
        self._criu = criu
        self._store = store
        self._keys = keys
        self._plugin_problem = plugin_problem
        self._store_orders = store_orders
        self._config_digest = config_digest
        self._problem = criu_problem(criu)
        self._version = criu_version(criu)
        self._glibc = libc()
        self._gpus = gpus

    def facts(self) -> NodeFacts:
        free, trouble = 0, ""
        try:
            free = self._store.check()
        except (StoreUnavailable, IntegrityError) as error:
            trouble = error.message
        uname, gpus, plugin = os.uname(), self._gpus(), self._plugin_problem()
        return NodeFacts(
            arch=uname.machine,
            kernel=uname.release,
            cpu_flags=processor.flags(),
            xsave=processor.xsave_size(self._criu),
            glibc=self._glibc.version,
            glibc_build=self._glibc.build_id,
            mounts=filesystems.places(),
            hugepages=filesystems.hugepages("nr_hugepages"),
            criu=self._version,
            criu_ok=not self._problem,
            criu_problem=self._problem,
            plugin_seen=not plugin,
            plugin_problem=plugin,
            io_uring_disabled=_io_uring_disabled(),
            store_ok=not trouble,
            store_problem=trouble,
            store_free=free,
            store_keys=self._keys.ids(),
            version=__version__,
            config_digest=self._config_digest,
            memory_total=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            store_orders=self._store_orders(),
            gpus=gpus.cards,
            gpu_driver=gpus.driver,
            gpu_problem=gpus.problem,
        )
