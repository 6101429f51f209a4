"""Sites whose slurm.conf says what the lab's does not."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.sessions import only, processes, resume
from tests.cluster.test_failures import is_whole
from tests.cluster.test_hibernate import program

pytestmark = pytest.mark.cluster
CONF = "/etc/slurm/slurm.conf"
NEWER = Path(__file__).parent / "inside/newer_namespaces.py"


@contextmanager
def slurm_conf(lab, *lines: str) -> Iterator[None]:
    """With these lines in it, on every node."""
    text = "".join(f"{line}\n" for line in lines)
    every = ("ctl", *nodes(lab))
    try:
        for node in every:
            lab.exec(node, "sh", "-ec", f"cp {CONF} {CONF}.before; cat >> {CONF}", stdin=text)
        restart(lab)
        yield
    finally:
        for node in every:
            lab.exec(node, "sh", "-c", f"[ ! -e {CONF}.before ] || mv {CONF}.before {CONF}")
        restart(lab)


def nodes(lab) -> list[str]:
    return lab.out("ctl", "sinfo", "-h", "-N", "-p", "main", "-o", "%N").split()


def restart(lab) -> None:
    lab.restart_daemon("ctl", "slurmctld")
    for node in nodes(lab):
        lab.restart_daemon(node, "slurmd")

    def states() -> set[str]:
        return set(lab.out("ctl", "sinfo", "-h", "-N", "-p", "main", "-o", "%T").split())

    lab.wait("nodes that answer", lambda: states() <= {"idle", "mixed", "drained"}, 90)


@contextmanager
def placed(lab, name: str, text: str) -> Iterator[None]:
    every = nodes(lab)
    try:
        for node in every:
            write = f"cat > /etc/slurm/{name}; chmod 755 /etc/slurm/{name}"
            lab.exec(node, "sh", "-c", write, stdin=text)
        yield
    finally:
        for node in every:
            lab.exec(node, "rm", "-f", f"/etc/slurm/{name}")


@pytest.fixture
def tmp_of_its_own(lab) -> Iterator[None]:
    """Slurm gives each job one, and clears away what jobs leave."""
    for node in nodes(lab):
        lab.exec(node, "python3", "-", stdin=NEWER.read_text())
    container = "AutoBasePath=true\nBasePath=/var/job_containers\n"
    with (
        placed(lab, "job_container.conf", container),
        placed(lab, "epilog", "#!/bin/sh\nrm -rf /tmp/left-$SLURM_JOB_ID\n"),
        slurm_conf(lab, "JobContainerType=job_container/tmpfs", "Epilog=/etc/slurm/epilog"),
    ):
        yield


@pytest.fixture
def prolog(lab) -> Iterator[None]:
    """It fails where it is told to."""
    with (
        placed(lab, "prolog", "#!/bin/sh\n[ ! -e /run/prolog-fails ]\n"),
        slurm_conf(lab, "Prolog=/etc/slurm/prolog"),
    ):
        yield


# -- C19: a private /tmp by Slurm's own means --------------------------------------------------

KEEPER = """
import os, socket, time
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=1 << 16)
block.buf[:5] = b"hello"
file = open("/tmp/kept", "w+"); file.write("private"); file.flush()
gone = open("/tmp/gone", "w+"); gone.write("ghost"); gone.flush(); os.unlink("/tmp/gone")
server = socket.socket(socket.AF_UNIX); server.bind("/tmp/socket"); server.listen()
count = 0
while True:
    count += 1
    client = socket.socket(socket.AF_UNIX); client.connect("/tmp/socket"); server.accept()
    other = shared_memory.SharedMemory(block.name)
    gone.seek(0)
    whole = (open("/tmp/kept").read(), gone.read(), bytes(other.buf[:5])) == (
        "private", "ghost", b"hello")
    other.close()
    name = os.environ["SAY"]
    open(name + ".new", "w").write(f"{count} {os.getpid()} {os.uname().nodename} {whole}")
    os.rename(name + ".new", name)
    time.sleep(0.2)
"""


def test_what_lies_in_the_jobs_own_tmp_comes_along(lab, tmp_of_its_own):
    """C19."""
    with only(lab, "n1"):
        job = program(lab, f"exec python3 -c {shlex.quote(KEEPER)}")
    try:
        before = job.counts_on()
        assert before.memory
        assert lab.exec("n1", "test", "-e", "/tmp/kept", check=False).returncode, "it is private"
        for node in ("n2", "n1"):
            job.reclaim("hibernate")
            with only(lab, node):
                job.reclaim("restore")
            after = job.counts_on()
            assert (after.pid, after.node, after.memory) == (before.pid, node, True)
    finally:
        job.cancel()


# -- C20: whose hold it is --------------------------------------------------------------------


def test_a_launch_that_fails_again_and_again_is_shown_and_loses_nothing(lab, counter, prolog):
    """C20: Slurm holds such a job by itself, each time, and drains the node."""
    with only(lab, "n1"):
        job = counter()
    before = job.seen()
    job.reclaim("hibernate")
    lab.exec("n2", "touch", "/run/prolog-fails")
    reasons: set[str] = set()
    try:
        for _ in range(6):  # more than Slurm's max_batch_requeue
            with only(lab, "n2"):
                asked = job.session()["restarts"]
                job.reclaim("restore", "--no-wait")
                # Slurm has more than one way to say so, by what the node still knows of the job.
                lab.wait("the failure", lambda n=asked: job.session()["restarts"] > n, 60)
                job.wait_for_session("HIBERNATED")
            assert job.squeue("%Q") == "0"
            reasons.add(job.session()["reason"])
            resume(lab, "n2")
        assert any("launch fail" in reason for reason in reasons), reasons
    finally:
        lab.exec("n2", "rm", "/run/prolog-fails")
    assert processes(lab, "n2") == []
    with only(lab, "n1"):
        is_whole(job, before)


def test_an_operators_own_hold_wins(lab, counter):
    """C20."""
    job = counter()
    before = job.seen()
    job.reclaim("hibernate")
    assert job.reclaim("restore", user="bob", check=False).returncode == 26
    lab.exec("ctl", "scontrol", "hold", str(job.job))
    done = job.reclaim("restore", check=False)
    assert done.returncode == 26
    assert "held by an operator" in done.stderr
    assert lab.exec(
        "ctl", "scontrol", "release", str(job.job), user="alice", check=False
    ).returncode
    assert job.session()["state"] == "HIBERNATED"
    job.reclaim("restore", user="olga")
    after = job.counts_on()
    assert after.pid == before.pid


def test_an_account_that_has_lost_its_level_ends_no_session(lab, counter):
    """Slurm then says of every job of others that there is none."""

    def level(name: str) -> None:
        words = ("modify", "user", "slurm-reclaim", "set", f"AdminLevel={name}")
        lab.exec("ctl", "sacctmgr", "-i", *words)

    def told() -> int:
        return lab.logs("ctl", "reclaimd").count("hides jobs of others from slurm-reclaim")

    with slurm_conf(lab, "PrivateData=jobs"):
        job, before = counter(), told()
        level("None")
        try:
            lab.wait("jobs to be hidden", lambda: told() > before, 60)
            assert job.session()["state"] == "ACTIVE"
        finally:
            level("Administrator")
        job.reclaim("hibernate")
        job.reclaim("restore")
        job.counts_on()
