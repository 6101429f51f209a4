"""What somebody who got into the store as root could do to a checkpoint. Knows the store by the
manifests alone: which files belong to a checkpoint is what lies below its session's folder.

tamper.py FOLDER HOW OTHER; FOLDER and OTHER are those of sessions. What changes credentials is then
sealed with the node's own keys, as only root of a node can do it.
"""

import contextlib
import json
import os
import shutil
import struct
import sys
from dataclasses import replace
from pathlib import Path

from slurm_reclaim.adapters.criu import images, schema
from slurm_reclaim.adapters.store import blocks
from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.adapters.store.files import read_part
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.seal import Seal
from slurm_reclaim.config.load import load
from slurm_reclaim.model.ids import parse_session_id

CONFIG = load()
STORE = Path(CONFIG.store.path)


def newest(folder):
    return max((p for p in folder.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))


def manifest(folder):
    return newest(folder) / "manifest.json"


def body(folder):
    raw, _, _ = manifest(folder).read_bytes().rstrip(b"\n").rpartition(b"\n")
    return json.loads(raw)


def contents(folder):
    """Every file of the session but manifests and logs, the largest first."""
    found = [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".log"]
    found = [p for p in found if p.name != "manifest.json" and p.stat().st_size]
    return sorted(found, key=lambda p: -p.stat().st_size)


def seal(folder, raw, keys=None):
    said = json.loads(raw)
    place = f"{said['session']}/{said['restarts']}"
    keys = keys or KeyFile(Path(CONFIG.store.keys))
    manifest(folder).write_bytes(Seal(keys, STORE).seal(raw, place))


def remake(folder, change):
    """The same checkpoint but for what `change` does to its small images, committed and sealed by
    the store itself."""
    said = body(folder)
    id, restarts = parse_session_id(said["session"]), said["restarts"]
    keys = KeyFile(Path(CONFIG.store.keys))
    store = DirectoryStore(STORE, id.cluster, Path("/root/tamper"), Seal(keys, STORE))
    opened = store.open(id, restarts)
    opened.ready()
    known = opened.manifest
    index = blocks.decode(read_part(newest(folder), known.contents.parts[0]))
    found = {}
    for stream in index.streams:
        if stream.bulk:
            with opened.send(stream.name) as file:
                found[stream.name] = file.read()
    change(opened.images)
    found |= {path.name: path.read_bytes() for path in opened.images.iterdir()}
    opened.close()
    staging = store.stage(id, restarts, known.credentials)
    for name, data in found.items():
        with staging.receive(name) as file:
            file.write(data)
    store.commit(staging, id, restarts, lambda contents: replace(known, contents=contents))
    staging.close()


# -- what is done


def flip(folder, other):
    """One bit in the middle of the largest file."""
    path = contents(folder)[0]
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def cut(folder, other):
    path = contents(folder)[0]
    os.truncate(path, path.stat().st_size - 1)


def swap(folder, other):
    """Two pieces of the largest file change places."""
    path = contents(folder)[0]
    raw = bytearray(path.read_bytes())
    size = min(4096, len(raw) // 4)
    one, two = slice(0, size), slice(2 * size, 3 * size)
    raw[one], raw[two] = raw[two], raw[one]
    path.write_bytes(raw)


def graft(folder, other):
    """The largest file is that of another user's session."""
    shutil.copyfile(contents(other)[0], contents(folder)[0])


def edit(folder, other):
    """The manifest says another uid."""
    path = manifest(folder)
    raw = path.read_bytes()
    changed = raw.replace(b'"uid":2001', b'"uid":0')
    assert changed != raw
    path.write_bytes(changed)


def unseal(folder, other):
    manifest(folder).write_text(json.dumps(body(folder)))


def own_key(folder, other):
    keys = KeyFile(Path("/root/forged.keys"))
    with contextlib.suppress(FileNotFoundError):
        keys.path.unlink()
    keys.add(0)
    seal(folder, json.dumps(body(folder)).encode(), keys)


def others(folder, other):
    """All of another session's checkpoint in this one's place, seal and all."""
    shutil.rmtree(newest(folder))
    shutil.copytree(newest(other), folder / newest(other).name)


def link(folder, other):
    path = contents(folder)[0]
    path.rename("/shared/reclaim/elsewhere")
    path.symlink_to("/shared/reclaim/elsewhere")


def manifest_link(folder, other):
    manifest(folder).rename("/shared/reclaim/elsewhere")
    manifest(folder).symlink_to("/shared/reclaim/elsewhere")


def manifest_hard_link(folder, other):
    with contextlib.suppress(FileNotFoundError):
        os.unlink("/shared/reclaim/elsewhere")
    os.link(manifest(folder), "/shared/reclaim/elsewhere")


def manifest_fifo(folder, other):
    path = manifest(folder)
    path.unlink()
    os.mkfifo(path, 0o600)


def writable(folder, other):
    manifest(folder).chmod(0o666)


def fifo(folder, other):
    path = contents(folder)[0]
    path.unlink()
    os.mkfifo(path, 0o600)


def _cores(folder, change):
    def edit(place):
        path = sorted(place.glob("core-*.img"))[-1]
        images.edit(path, "Core", change)

    remake(folder, edit)


def uid(folder, other):
    def change(core):
        creds = core.thread_core.creds
        creds.uid = creds.euid = creds.suid = creds.fsuid = 0
        return True

    _cores(folder, change)


def group(folder, other):
    def change(core):
        core.thread_core.creds.groups.append(0)
        return True

    _cores(folder, change)


def capability(folder, other):
    def change(core):
        creds = core.thread_core.creds
        for caps in (creds.cap_prm, creds.cap_eff, creds.cap_inh, creds.cap_amb):
            caps[0] |= 1 << 21
        return True

    _cores(folder, change)


def unfiltered(folder, other):
    def change(core):
        core.thread_core.seccomp_mode = 0
        return True

    _cores(folder, change)


def stranger(folder, other):
    """A process more than there was."""

    def edit(place):
        source = sorted(place.glob("core-*.img"))[-1]
        pid = source.stem.removeprefix("core-")
        table = source.with_name("pstree.img")
        item = schema.message("PsTree")(pid=999, ppid=int(pid), pgid=999, sid=999, threads=[999])
        raw = item.SerializeToString()
        table.write_bytes(table.read_bytes() + struct.pack("<I", len(raw)) + raw)
        for kind in ("core", "mm", "fs", "ids", "pagemap"):
            path = source.with_name(f"{kind}-{pid}.img")
            shutil.copyfile(path, path.with_name(f"{kind}-999.img"))

    remake(folder, edit)


def namespace(folder, other):
    remake(folder, lambda place: (place / "userns-1.img").write_bytes(b"x"))


def nothing(folder, other):
    """The way itself does no harm, else it would prove nothing."""
    remake(folder, lambda place: None)


if __name__ == "__main__":
    words = [Path(word) for word in sys.argv[3:]]
    globals()[sys.argv[2]](Path(sys.argv[1]), *words)
