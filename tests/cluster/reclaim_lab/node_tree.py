"""Everything laid over the image on a node's disk: this checkout's installation and the lab's
configuration. Sent as one archive, unpacked on the node, so that no path of the node is ever
followed on the machine; skipped where the node already has it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reclaim_lab.errors import LabError
from reclaim_lab.node import Node
from reclaim_lab.shell import tail

KEPT = "/var/lib/slurm-reclaim-lab/files.json"
"""On the node: the files it was given, with their digests."""

# /etc/passwd and the like are the node's own; sysusers adds to them there.
_NOT_SENT = ("tmp", "run", "root", "var/cache", "var/log", "etc/passwd", "etc/group", "etc/shadow",
             "etc/gshadow", "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-",
             "etc/ld.so.cache", "etc/.pwd.lock")  # fmt: skip

_AFTER = """
set -eu
[ ! -e /usr/lib/sysusers.d/slurm-reclaim.conf ] || systemd-sysusers slurm-reclaim.conf
id slurm-reclaim >/dev/null 2>&1 ||
    useradd --system --user-group --home-dir / --shell /usr/sbin/nologin slurm-reclaim
chown -R munge:munge /etc/munge
[ ! -e /etc/slurm/slurmdbd.conf ] || chown slurm:slurm /etc/slurm/slurmdbd.conf
"""


@dataclass(frozen=True)
class File:
    text: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Tree:
    layers: list[Path]
    files: dict[str, File]

    def digests(self, left_out: Iterable[str]) -> dict[str, str]:
        """Every file to be on the node, with a digest of what matters about it."""
        found: dict[str, str] = {}
        for name, path in self._layered().items():
            if not _sent(name) or name in left_out:
                continue
            if path.is_symlink():
                found[name] = _digest(os.readlink(path).encode(), "link")
            elif path.is_file():
                found[name] = _digest(path.read_bytes(), f"{path.stat().st_mode:o}")
            elif not path.is_dir():
                raise LabError(f"installing removed /{name} of the image: not provided for")
        for name, file in self.files.items():
            found[name] = _digest(file.text, f"{file.mode:o}")
        return found

    def _layered(self) -> dict[str, Path]:
        return {
            str(path.relative_to(layer)): path
            for layer in self.layers
            for path in sorted(layer.rglob("*"))
        }

    def archive(self, names: Iterable[str]) -> bytes:
        layered = self._layered()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for name in sorted(names):
                if name in self.files:
                    file = self.files[name]
                    info = tarfile.TarInfo(name)
                    info.size, info.mode = len(file.text), file.mode
                    archive.addfile(info, io.BytesIO(file.text))
                else:
                    archive.add(layered[name], name, recursive=False)
        return buffer.getvalue()


def _digest(content: bytes, kind: str) -> str:
    return hashlib.sha256(kind.encode() + b"\0" + content).hexdigest()[:16]


def _sent(name: str) -> bool:
    return not any(name == left or name.startswith(left + "/") for left in _NOT_SENT)


def apply(node: Node, tree: Tree, left_out: Iterable[str]) -> set[str]:
    """Names of the files that were changed on the node's disk; empty when it had them all."""
    wanted = tree.digests(left_out)
    try:
        had: dict[str, str] = json.loads(node.read(KEPT))
    except (OSError, ValueError):
        had = {}
    stale = sorted(had.keys() - wanted.keys())
    fresh = {name for name, digest in wanted.items() if had.get(name) != digest}
    if not stale and not fresh:
        return set()
    if stale:
        listed = "".join(f"/{name}\0" for name in stale)
        node.run(["xargs", "-0", "rm", "-f", "--"], doing="removing old files", text_in=listed)
    done = subprocess.run(
        node.entering(["tar", "-x", "-p", "--numeric-owner", "-C", "/", "-f", "-"]),
        input=tree.archive(fresh),
        capture_output=True,
    )
    if done.returncode != 0:
        raise LabError(f"writing to {node.name}: {tail(done.stderr.decode(errors='replace'))}")
    script = f"{_AFTER}mkdir -p {os.path.dirname(KEPT)}; cat >{KEPT}.new; mv {KEPT}.new {KEPT}"
    node.run(["sh", "-c", script], doing=f"setting up {node.name}", text_in=json.dumps(wanted))
    return fresh | set(stale)
