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


def _outer(job: Counter) -> int:
    """PID, as the node has it, of the counting process."""
    found = job.lab.out(job.node, "pgrep", "-o", "-u", job.user, "-f", f"objects.py {job.path}")
    return int(found)


def _children(job: Counter) -> list[str]:
    done = job.lab.exec(job.node, "pgrep", "-r", "S,R,T", "-P", str(_outer(job)), check=False)
    return done.stdout.split()
