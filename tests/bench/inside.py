"""The bare tool, on a node: `criu dump` + fsync of a session's tree, and `criu restore` of it.

inside.py dump JOB DIR     the tree runs on; prints {"seconds", "bytes"}
inside.py restore JOB DIR  in namespaces of its own, ended afterwards; prints {"seconds"}
Run with the product's own interpreter, so that both sides use the same flags and rights.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from slurm_reclaim.adapters.criu import command, images, program
from slurm_reclaim.adapters.criu.program import ENVIRONMENT, LIBEXEC, Entry
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.model.checkpoint import Credentials
from slurm_reclaim.model.node_session import NodeSession

CRIU = "/usr/sbin/criu"
RECORDS = Path("/var/lib/slurm-reclaim/sessions")


def dump(job: str, folder: Path) -> None:
    session = msgspec.json.decode((RECORDS / f"{job}.json").read_bytes(), type=NodeSession)
    members = tree.members(session.init)
    root = next(p for p in members if p.pid == session.child or p.inner == session.root)
    owner = tree.credentials(root)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chown(folder, owner.uid, owner.gid)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    entry = Entry(
        join=((session.init, "mnt,pid"), (root.pid, "time")),
        identity=owner,
        caps=command.DUMP_CAPS + command.SECCOMP_CAPS,
        keep=(fd,),
    )
    words = command.dump(CRIU, root.inner, fd, 512 << 20)
    words.remove("--stream")
    words[words.index("--leave-stopped")] = "--leave-running"
    began = time.monotonic()
    done = program.run(entry, words, 600)
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    seconds = time.monotonic() - began
    if not done.ok:
        raise SystemExit(f"criu dump failed: {command.complaints(folder / 'dump.log')}")
    stdout = os.readlink(f"/proc/{session.relay}/fd/1")
    facts = {"owner": msgspec.to_builtins(owner), "stdout": stdout, "root": root.inner}
    facts["cores"] = sorted(os.sched_getaffinity(session.relay))
    (folder.parent / f"{folder.name}.json").write_text(json.dumps(facts))
    size = sum(p.stat().st_size for p in folder.iterdir())
    print(json.dumps({"seconds": seconds, "bytes": size}))


def restore(folder: Path) -> None:
    facts = json.loads((folder.parent / f"{folder.name}.json").read_text())
    owner = msgspec.convert(facts["owner"], Credentials)
    images.close_outside_tcp(folder)
    images.drop_seccomp(folder)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    null = os.open("/dev/null", os.O_WRONLY | os.O_APPEND)
    entry = Entry(block_io_uring=True, identity=owner, caps=command.RESTORE_CAPS, keep=(fd, null))
    words = command.restore(CRIU, fd, [(null, facts["stdout"])])
    words.remove("--stream")
    for number in (fd, null):
        os.set_inheritable(number, True)
    inner = [str(LIBEXEC / "reclaim-exec"), *entry.argv(), "--", *words]
    os.sched_setaffinity(0, facts["cores"])  # what was given to the job, as the product obeys it
    script = (
        "mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /dev/pts; "
        "mount -t tmpfs -o mode=1777 tmpfs /dev/shm; mount -t tmpfs -o mode=1777 tmpfs /tmp; "
        f"echo {images.highest_pid(folder)} > /proc/sys/kernel/ns_last_pid; "
        'began=$(date +%s.%N); "$@"; rc=$?; echo "$rc $began $(date +%s.%N)"'
    )
    done = subprocess.run(
        ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "sh", "-c", script, "sh", *inner],
        capture_output=True, text=True, pass_fds=(fd, null), env=ENVIRONMENT, check=True,
    )  # fmt: skip
    status, began, ended = done.stdout.split()[-3:]
    if status != "0":
        log = command.complaints(folder / "restore.log")
        raise SystemExit(f"criu restore failed: {log or done.stderr or done.stdout}")
    print(json.dumps({"seconds": float(ended) - float(began)}))


if __name__ == "__main__":
    if sys.argv[1] == "dump":
        dump(sys.argv[2], Path(sys.argv[3]))
    else:
        restore(Path(sys.argv[3]))
