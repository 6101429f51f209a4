"""What somebody who got into the store as root could do to a checkpoint. Knows the store by the
manifests alone: which files belong to a checkpoint is what lies below its session's folder.

tamper.py FOLDER HOW [OTHER FOLDER]; FOLDER is that of a session. With `reseal` in front of HOW the
manifest is written anew with the node's own keys, as only root of a node can do it.
"""

import contextlib
import json
import os
import shutil
import struct
import sys
from pathlib import Path

from slurm_reclaim.adapters.criu import images, schema
from slurm_reclaim.adapters.store import directory
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.seal import Seal
from slurm_reclaim.config.load import load

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


def reseal(folder):
    """Digests and sizes as the files are now, and the real seal."""
    said = body(folder)
    for part in said["parts"]:
        path = newest(folder) / part["path"]
        part["size"], part["digest"] = path.stat().st_size, directory.digest(path)
    seal(folder, json.dumps(said).encode())


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
    """The contents of the two largest files change places."""
    one, two = contents(folder)[:2]
    aside = one.with_name("aside")
    one.rename(aside)
    two.rename(one)
    aside.rename(two)


def graft(folder, other):
    """The largest file is that of another user's session."""
    shutil.copyfile(contents(other)[0], contents(folder)[0])


def edit(folder, other):
    """The manifest says another uid."""
    path = manifest(folder)
    path.write_bytes(path.read_bytes().replace(b'"uid": 2001', b'"uid": 0'))


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
    manifest(folder.parent / folder.name).parent.joinpath("manifest.json").symlink_to(
        "/shared/reclaim/elsewhere"
    )


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
    path = sorted(newest(folder).glob("images/core-*.img"))[-1]
    images.edit(path, schema.message("Core"), change)


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
    """A process more than there was, which is root."""
    source = sorted(newest(folder).glob("images/core-*.img"))[-1]
    pid = source.stem.removeprefix("core-")
    table = source.with_name("pstree.img")
    item = schema.message("PsTree")(pid=999, ppid=int(pid), pgid=999, sid=999, threads=[999])
    raw = item.SerializeToString()
    table.write_bytes(table.read_bytes() + struct.pack("<I", len(raw)) + raw)
    for kind in ("core", "mm", "fs", "ids", "pagemap"):
        shutil.copyfile(source.with_name(f"{kind}-{pid}.img"),
                        source.with_name(f"{kind}-999.img"))  # fmt: skip
    said = body(folder)
    for kind in ("core", "mm", "fs", "ids", "pagemap"):
        said["parts"].append({"path": f"images/{kind}-999.img", "size": 0, "digest": ""})
    seal(folder, json.dumps(said).encode())


def main():
    words = sys.argv[2:]
    folder = Path(sys.argv[1])
    sealed_again = words[0] == "reseal"
    how, *rest = words[1:] if sealed_again else words
    globals()[how](folder, Path(rest[0]) if rest else None)
    if sealed_again:
        reseal(folder)


if __name__ == "__main__":
    main()
