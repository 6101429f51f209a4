"""Everything laid over the image on a node's disk: this checkout's installation and the lab's
configuration. Sent as one archive, unpacked on the node, so that no path of the node is ever
followed on the machine; skipped where the node already has it.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from reclaim_lab.errors import LabError
from reclaim_lab.node import Node
from reclaim_lab.shell import tail

KEPT = "/var/lib/slurm-reclaim-lab"
"""On the node: which tree it has, and of which files."""

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
    layer: Path
    files: dict[str, File]

    @property
    def stamp(self) -> str:
        total = hashlib.sha256(self.layer.name.encode())
        for name, file in sorted(self.files.items()):
            total.update(f"{name}\0{file.mode}\0".encode() + file.text + b"\0")
        return total.hexdigest()[:16]


def _sent(name: str) -> bool:
    return not any(name == left or name.startswith(left + "/") for left in _NOT_SENT)


def _archive(tree: Tree) -> tuple[bytes, list[str]]:
    names: list[str] = []
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:

        def add(name: str, file: File) -> None:
            names.append(name)
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(file.text), file.mode
            archive.addfile(info, io.BytesIO(file.text))

        for path in sorted(tree.layer.rglob("*")):
            name = str(path.relative_to(tree.layer))
            if not _sent(name) or name in tree.files:
                continue
            if path.is_char_device():
                raise LabError(f"installing removed /{name} of the image: not provided for")
            archive.add(path, name, recursive=False)
            if not path.is_dir() or path.is_symlink():
                names.append(name)
        for name, file in sorted(tree.files.items()):
            add(name, file)
    return buffer.getvalue(), names


def apply(node: Node, tree: Tree) -> bool:
    """True when the node's disk was changed."""
    try:
        if node.path(f"{KEPT}/stamp").read_text().strip() == tree.stamp:
            return False
        before = set(node.path(f"{KEPT}/files").read_text().splitlines())
    except OSError:
        before = set()
    content, names = _archive(tree)
    stale = "".join(f"/{name}\0" for name in sorted(before - set(names)))
    if stale:
        node.run(["xargs", "-0", "rm", "-f", "--"], doing="removing old files", text_in=stale)
    done = subprocess.run(
        node.entering(["tar", "-x", "-p", "--numeric-owner", "-C", "/", "-f", "-"]),
        input=content,
        capture_output=True,
    )
    if done.returncode != 0:
        raise LabError(f"writing to {node.name}: {tail(done.stderr.decode(errors='replace'))}")
    script = f"{_AFTER}mkdir -p {KEPT}; cat >{KEPT}/files; echo {tree.stamp} >{KEPT}/stamp"
    node.run(
        ["sh", "-c", script], doing=f"setting up {node.name}", text_in="\n".join(names) + "\n"
    )
    return True
