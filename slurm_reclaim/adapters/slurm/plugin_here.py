"""Whether the SPANK plugin works on this node, as far as can be told before a job starts here: a
job with a checkpoint that starts without it runs its script from the top (S10)."""

from __future__ import annotations

import glob
import os
import re
import subprocess
from functools import lru_cache
from pathlib import Path

from slurm_reclaim.adapters.criu.program import ENVIRONMENT, LIBEXEC
from slurm_reclaim.model import plugstack

_PLUGIN_DIRS = ("/usr/lib64/slurm", "/usr/lib/slurm", "/usr/lib/*/slurm-wlm", "/usr/lib/*/slurm")
# Where a slurmd that gets its configuration from slurmctld has it: what lies in /etc counts for
# nothing then.
_CONFIGLESS = "/run/slurm/conf/plugstack.conf"
_VERSION = re.compile(r"(\d+\.\d+)\.")
_TIMEOUT = 10.0  # seconds


def missing_program(libexec: Path = LIBEXEC) -> str:
    """A program of ours that sessions need and that can't be run here; empty where none is."""
    programs = [str(libexec / name) for name in plugstack.PROGRAMS]
    return next((p for p in programs if not os.access(p, os.X_OK)), "")


class _Files:
    """plugstack.Files, below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str) -> str:
        return (self._root / path.lstrip("/")).read_text(errors="replace")

    def glob(self, pattern: str) -> list[str]:
        found = glob.glob(str(self._root / pattern.lstrip("/")))
        return sorted("/" + os.path.relpath(path, self._root) for path in found)


class PluginHere:
    """Looked at anew each time: plugstack.conf and Slurm are changed under running daemons, and the
    next step obeys it. What can't be found out is no problem: a "no" refuses every restore here."""

    def __init__(
        self, stack: str, scontrol: str, libexec: Path = LIBEXEC, root: Path = Path("/")
    ) -> None:
        """`stack`: PlugStackConfig of `scontrol show config`, empty where Slurm did not say."""
        self._stack, self._scontrol = stack, scontrol
        self._libexec, self._root = libexec, root

    def problem(self) -> str:
        """Empty where there is none."""
        return self._missing() or self._not_named() or self._of_another_slurm()

    def _missing(self) -> str:
        # Slurm's plugins may lie anywhere: `make install` leaves a link beside the programs to
        # where it put ours; without one (a copy by hand) the usual places are looked at.
        usual = (p for d in _PLUGIN_DIRS for p in self._root.glob(f"{d[1:]}/{plugstack.PLUGIN}"))
        if not (self._libexec / "plugin").is_file() and not any(usual):
            return f"the SPANK plugin {plugstack.PLUGIN} is not installed there"
        program = missing_program(self._libexec)
        return f"{program} is not installed there" if program else ""

    def _not_named(self) -> str:
        files = _Files(self._root)
        for path in (_CONFIGLESS, self._stack):
            try:
                files.read(path)
            except (OSError, ValueError):
                continue
            return "" if plugstack.ours(files, path) else f"{path} does not name the plugin there"
        return ""

    def _of_another_slurm(self) -> str:
        """Slurm loads plugins of its own major release only ("incompatible plugin version")."""
        try:
            built = _VERSION.match((self._libexec / "slurm-version").read_text())
        except OSError:
            return ""  # installed by an older makefile, or by hand
        here = _version(self._scontrol)
        if built is None or not here or built[1] == here:
            return ""
        return f"the plugin is built for Slurm {built[1]}, and that node has {here}"


def _version(scontrol: str) -> str:
    """`24.11`; empty where it can't be told. Each binary is asked once."""
    try:
        facts = os.stat(scontrol)
        return _asked(scontrol, facts.st_dev, facts.st_ino, facts.st_mtime_ns)
    except (OSError, subprocess.SubprocessError):
        return ""


@lru_cache(maxsize=4)
def _asked(scontrol: str, *_identity: int) -> str:
    done = subprocess.run(
        [scontrol, "--version"], capture_output=True, text=True, env=ENVIRONMENT, timeout=_TIMEOUT
    )
    found = _VERSION.search(done.stdout)
    return found[1] if found else ""
