"""Objects of the kernel that a session may have: each comes back as it was, or is refused by its
name before anything is frozen; and what is found only by the dump leaves the session as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.notebook import put
from tests.cluster.sessions import Counter, only
from tests.cluster.test_hibernate import program

pytestmark = pytest.mark.cluster

# For each of the group `refused` of inside/objects.py, which see.
REFUSED = {
    "eventfd-semaphore", "timerfd-clock", "thread-left", "thread-private", "seccomp",
    "thread-pidfd", "packet-pipe", "many-pipes", "no-descriptor-left", "high-descriptor",
    "path-too-long", "cgroup-file",
}  # fmt: skip


@contextmanager
def having(lab: Lab, *groups: str, node: str = "n1") -> Iterator[Counter]:
    put(lab, "objects.py")
    with only(lab, node):
        job = program(lab, f"python3 /shared/inside/objects.py $SAY {' '.join(groups)}")
    try:
        yield job
    finally:
        job.cancel()
        lab.exec("ctl", "rm", "-rf", f"{job.path}.d", check=False)


def differs(job: Counter) -> dict[str, str]:
    """What is not as it was when it was made."""
    job.lab.exec("ctl", "touch", f"{job.path}.check", user=job.user)
    said = job.lab.wait(
        "a look at all of them",
        lambda: job.lab.exec("ctl", "cat", f"{job.path}.seen", check=False).stdout,
        60,
    )
    found = json.loads(said)
    assert isinstance(found, dict)
    return found


def test_they_come_back_as_they_were(lab: Lab) -> None:
    with having(lab, "kept") as job:
        before = job.seen()
        for node in ("n2", "n1"):
            job.reclaim("hibernate")
            with only(lab, node):
                job.reclaim("restore")
            assert job.node == node
        assert job.counts_on().pid == before.pid
        assert differs(job) == {}


def test_what_could_not_come_back_is_refused_by_name(lab: Lab) -> None:
    with having(lab, "refused") as job:
        before = job.seen()
        done = job.reclaim("hibernate", check=False)
        assert done.returncode == 21, done.stderr
        blockers = job.session()["blockers"]
        assert {each.partition(":")[0] for each in blockers} == REFUSED, blockers
        texts = "\n".join(blockers)
        for part in ("open files", "working directory"):
            assert f"has {part} of its own" in texts
        assert job.counts_on().pid == before.pid
        # With their holders gone it is a session like others.
        lab.exec(job.node, "pkill", "-KILL", "-u", job.user, "-P", str(_outer(job)))
        lab.wait("them to be gone", lambda: len(_children(job)) == 0)
        job.reclaim("hibernate")
        job.reclaim("restore")
        assert job.counts_on().pid == before.pid


def test_what_the_dump_finds_leaves_the_session_as_it_was(lab: Lab) -> None:
    with having(lab, "failed") as job:
        before = job.seen()
        done = job.reclaim("hibernate", check=False)
        assert done.returncode in (21, 41), done.stderr
        assert "socket" in done.stderr
        assert job.counts_on().pid == before.pid
        assert differs(job) == {}


HOSTILE = r"""
name=$(printf 'a\033[31m\377\nINFO forged')
sbatch --parsable --reclaim=on -D "$HOME" -o %j.out -J "$name" --comment "$name" --wrap "
> '$name'; ln -f '$name' '$name.2'; exec 5< '$name'; rm '$name'
until [ -e $HOME/count-\$SLURM_JOB_ID ]; do sleep 0.2; done
exec 5<&-; sleep 600"
"""


def test_names_that_are_no_text_hinder_nobody_and_forge_nothing(lab: Lab) -> None:
    job = Counter(lab, int(lab.out("n1", "bash", "-c", HOSTILE, user="alice")), "alice")
    try:
        job.wait_for_session("ACTIVE")
        done = job.reclaim("hibernate", check=False)
        assert "deleted-link" in done.stderr
        assert r"a\x1b[31m\xff\nINFO forged" in done.stderr
        lab.exec("ctl", "touch", job.path, user="alice")
        lab.wait("it to be closed", lambda: not job.reclaim("hibernate", check=False).returncode)
        job.reclaim("restore")
        job.wait_for_session("ACTIVE")
        for node, daemon in (("ctl", "reclaimd"), ("n1", "reclaim-agent"), ("n2", "reclaim-agent")):
            text = lab.logs(node, daemon)
            assert "\nINFO forged" not in text
            assert "\x1b" not in text
    finally:
        job.cancel()


# -- what lies around a session ------------------------------------------------------------------

ATTRIBUTES = """exec python3 -c '
import os, time
open("/tmp/attributes", "w").close()
os.setxattr("/tmp/attributes", "user.kept", b"yes")
count = 0
while True:
    count += 1
    kept = os.listxattr("/tmp/attributes") == ["user.kept"]
    with open(os.environ["SAY"] + ".new", "w") as file:
        file.write(f"{count} {os.getpid()} {os.uname().nodename} {kept}")
    os.rename(os.environ["SAY"] + ".new", os.environ["SAY"])
    if os.path.exists(os.environ["SAY"] + ".deeper"):
        os.unlink(os.environ["SAY"] + ".deeper")
        os.chdir("/tmp")
        for _ in range(25):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        os.chdir("/tmp")
    time.sleep(0.2)
'"""


def test_attributes_of_files_in_tmp_come_along_and_paths_too_deep_are_told(lab: Lab) -> None:
    job = program(lab, ATTRIBUTES)
    try:
        before = job.counts_on()
        assert before.memory
        job.reclaim("hibernate")
        job.reclaim("restore")
        after = job.counts_on()
        assert (after.pid, after.memory) == (before.pid, True)
        lab.exec("ctl", "touch", f"{job.path}.deeper", user="alice")
        job.counts_on()
        done = job.reclaim("hibernate", check=False)
        assert done.returncode == 41
        assert "longer than 4000 bytes" in done.stderr
        assert job.counts_on().pid == before.pid
    finally:
        job.cancel()


def test_a_restore_that_the_jobs_memory_is_too_small_for_says_so(lab: Lab) -> None:
    """CRIU needs some for each process, which a limit just above what they need has no room for."""
    many = "for i in $(seq 400); do sleep 600 & done"
    loop = "i=0; while :; do i=$((i+1)); echo $i $$ x True > $SAY; sleep 0.3; done"
    text = f"#!/bin/bash\nSAY=$HOME/count-$SLURM_JOB_ID\n{many}\n{loop}\n"
    words = ("--reclaim=on", "--mem=150", "-D", "/shared/home/alice", "-o", "%j.out")
    job = Counter(lab, lab.sbatch(text, *words), "alice")
    try:
        job.wait_for_session("ACTIVE")
        lab.wait("all of them", lambda: lab.exec("ctl", "cat", job.path, check=False).stdout)
        before = job.seen()
        job.reclaim("hibernate")
        done = job.reclaim("restore", check=False)
        assert done.returncode == 42
        more = f"scontrol update JobId={job.job} MinMemoryNode="
        assert more in done.stderr
        lab.exec("ctl", *f"{more}1500".split(), user="alice")
        job.reclaim("restore")
        assert job.counts_on().pid == before.pid
    finally:
        job.cancel()


def _outer(job: Counter) -> int:
    """PID, as the node has it, of the counting process."""
    found = job.lab.out(job.node, "pgrep", "-o", "-u", job.user, "-f", f"objects.py {job.path}")
    return int(found)


def _children(job: Counter) -> list[str]:
    done = job.lab.exec(job.node, "pgrep", "-r", "S,R,T", "-P", str(_outer(job)), check=False)
    return done.stdout.split()
