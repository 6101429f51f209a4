"""Runs a shell script inside a root put together from layers, and keeps what it wrote.

As a program (`python3 -m reclaim_lab.build_root SPEC`) it is the inside: `unshare` has given it
mount and PID namespaces of its own, so a build that is killed leaves neither mounts nor processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reclaim_lab import kernel
from reclaim_lab.errors import LabError
from reclaim_lab.host_pip import pip_settings
from reclaim_lab.shell import tail

# A killed `lab up` must not leave a build behind that writes where the next one does.
DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL"]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Build:
    lowers: list[Path]
    script: str
    place: Path
    """Gets `tree`, what the script added over the lowers."""
    shown: dict[str, str] = field(default_factory=dict)
    """Directories of this machine seen, read-only, at a place in the root."""
    env: dict[str, str] = field(default_factory=dict)


def build_in_root(build: Build, doing: str) -> None:
    pip = pip_settings()
    for name in ("tree", "work", "root"):
        (build.place / name).mkdir(exist_ok=True)
    spec = {
        "lowers": [str(path) for path in build.lowers],
        "place": str(build.place),
        "script": build.script,
        "shown": {
            **{path: path for path in pip.shown},
            "/etc/resolv.conf": "/etc/resolv.conf",
            "/etc/hosts": "/etc/hosts",
            **build.shown,
        },
        "env": {
            "PATH": PATH,
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            # pip then writes .pyc files that hold a digest of their source, not its time: the
            # same source gives the same files, and a node is sent only what differs.
            "SOURCE_DATE_EPOCH": "315532800",
            "PIP_NO_CACHE_DIR": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
            **pip.env,
            **build.env,
        },
    }
    inside = [*DIES_WITH_US, "unshare", "--mount", "--pid", "--fork", "--kill-child",
              "--propagation", "private", sys.executable, "-s", "-m", "reclaim_lab.build_root",
              json.dumps(spec)]  # fmt: skip
    log = build.place / "log"
    with log.open("w") as output:
        rc = subprocess.run(
            inside, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        ).returncode
    if rc != 0:
        raise LabError(f"{doing} failed: {tail(log.read_text(errors='replace'))} (all in {log})")


def _show(source: str, root: Path, inside: str) -> None:
    """Bind a path of the machine into the root; files are bound on a file, so make one."""
    target = root / inside.lstrip("/")
    if target.is_symlink():
        target.unlink()
    if os.path.isdir(source):
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    kernel.mount(os.path.realpath(source), str(target), flags=kernel.MS_BIND)
    flags = kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY
    kernel.mount("", str(target), flags=flags)


def _inside(spec: dict[str, Any]) -> int:
    place = Path(spec["place"])
    root = place / "root"
    lowers: list[str] = spec["lowers"]
    shown: dict[str, str] = spec["shown"]
    env: dict[str, str] = spec["env"]
    options = f"lowerdir={':'.join(lowers)},upperdir={place}/tree,workdir={place}/work"
    kernel.mount("overlay", str(root), "overlay", options=options)
    made = [path for shown_at in shown.values() for path in _missing(root, shown_at)]
    kernel.mount("proc", str(root / "proc"), "proc")
    kernel.mount("/dev", str(root / "dev"), flags=kernel.MS_BIND | kernel.MS_REC)
    for temporary in ("tmp", "run"):
        kernel.mount("tmpfs", str(root / temporary), "tmpfs", options="mode=1777")
    for source, inside in shown.items():
        if os.path.exists(source):
            _show(source, root, inside)
    rc = subprocess.run(
        ["chroot", str(root), "/bin/bash", "-euc", spec["script"]], env=env
    ).returncode
    for path in reversed(list(shown.values())):
        target = str(root / path.lstrip("/"))
        if os.path.ismount(target):
            kernel.unmount(target)
    for made_path in reversed(made):
        _remove_mount_point(made_path)
    return rc


def _missing(root: Path, inside: str) -> list[Path]:
    """What has to be made for a mount point, outermost first: it must not stay in the layer."""
    target = root / inside.lstrip("/")
    chain = [target, *target.parents]
    below_root = chain[: chain.index(root)]
    return [path for path in reversed(below_root) if not os.path.lexists(path)]


def _remove_mount_point(path: Path) -> None:
    with contextlib.suppress(OSError):  # something else was written there: it stays
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(_inside(json.loads(sys.argv[1])))
