"""One store through keys, clusters and job numbers: what is not this session is never taken for it,
and what is encrypted is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.sessions import Counter, only

pytestmark = pytest.mark.cluster

STORE = "/shared/reclaim"
PLACE = "/etc/slurm-reclaim/conf.d/zz-encrypt.toml"
KEYS = "/etc/slurm-reclaim/store.keys"
NODES = ("n1", "n2")

# -- a job number that is used again ---------------------------------------------------------------


@contextmanager
def numbered_from(lab: Lab, number: int) -> Iterator[None]:
    """slurmctld has lost all that it knew of jobs, and counts from `number`."""

    def restart(change: str) -> None:
        for node in ("ctl", *NODES):
            lab.exec(node, "sed", "-i", change, "/etc/slurm/slurm.conf")
        lab.stop_daemon("ctl", "slurmctld")
        lab.exec("ctl", "sh", "-c", "rm -f /var/spool/slurmctld/job_state*")
        lab.start_daemon("ctl", "slurmctld")
        lab.wait("nodes", lambda: lab.out("ctl", "sinfo", "-h", "-o", "%T") == "idle", 60)

    # The next number of all is kept, so that the tests after this one have numbers of their own.
    after = int(lab.sbatch("#!/bin/sh\n")) + 100
    try:
        restart(f"$ a FirstJobId={number}")
        yield
    finally:
        restart(f"s/^FirstJobId=.*/FirstJobId={after}/")


def forget_count(lab: Lab, job: Counter) -> None:
    lab.exec("ctl", "rm", "-f", job.path)


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_a_job_number_that_is_used_again(lab, counter, user):
    """By the same user, for whom of_job finds the old image, and by another one."""
    old = counter(mib=2)
    was = old.seen()
    old.reclaim("hibernate")
    old.wait_for("SPECIAL_EXIT")
    name = old.session()["session"]
    forget_count(lab, old)
    with numbered_from(lab, old.job):
        old.wait_for_session("ENDED")
        new = counter(user=user, mib=2)
        assert new.job == old.job
        assert new.session()["session"] != name
        assert new.output().splitlines() == ["started 0"], "it is a job of its own"
        assert new.seen().count < was.count + 100
        before = new.seen()
        new.reclaim("hibernate")
        new.reclaim("restore")
        now = new.counts_on()
        assert (now.pid, now.memory) == (before.pid, True)
        assert new.output().count("started") == 1
        kept = json.loads(lab.out("ctl", "reclaim", "checkpoints", "list", "--json"))
        assert name in {each["session"] for each in kept["checkpoints"]}, "S6: not ours to delete"
        if user == "bob":
            refused = new.reclaim("show", user="alice", check=False)
            assert refused.returncode != 0
        new.cancel()


# -- two clusters with one store -------------------------------------------------------------------


def test_the_folder_of_another_cluster_is_nobodys_business(lab, counter):
    """Neither listed nor verified nor deleted, nor believed under this one's name."""
    job = counter(mib=2)
    job.reclaim("hibernate")
    cluster = lab.out("ctl", "sh", "-c", "scontrol show config | sed -n 's/^ClusterName *= //p'")
    own = f"{STORE}/{cluster}"
    lab.exec("n1", "sh", "-c", f"cp -a {own} {STORE}/elsewhere")
    try:
        listed = json.loads(lab.out("ctl", "reclaim", "checkpoints", "list", "--json"))
        assert all(each["session"].startswith(f"{cluster}/") for each in listed["checkpoints"])
        # A cluster whose name was given to this one brings sessions that it never had.
        alien = job.session()["session"].rpartition("/")[2]
        theirs = alien.replace(f"{job.job}.", f"{job.job + 1}.", 1)
        lab.exec("n1", "sh", "-c", f"cp -a {STORE}/elsewhere/{alien} {own}/{theirs}")
        done = lab.exec("ctl", "reclaim", "checkpoints", "verify", f"{cluster}/{theirs}/0",
                        check=False)  # fmt: skip
        assert done.returncode != 0
        job.reclaim("restore")
        job.counts_on()
        before = lab.out("n1", "sh", "-c", f"cd {STORE}/elsewhere && find . -type f | sort")
        assert alien in before
    finally:
        lab.exec("n1", "sh", "-c", f"rm -rf {STORE}/elsewhere {own}/{job.job + 1}.*")


# -- encryption ------------------------------------------------------------------------------------

# Random, so that no compression hides it; a page of its own is known by 64 bytes in its middle.
SECRET = """#!/bin/bash
exec python3 -c '
import os, time
held = os.urandom(8 << 20)
path = os.path.expanduser("~/secret-" + os.environ["SLURM_JOB_ID"])
open(path, "w").write(held[5 << 20:(5 << 20) + 64].hex())
check, count = hash(held), 0
while True:
    count += 1
    told = f"{count} {os.getpid()} {os.uname().nodename} {hash(held) == check}"
    open(path + ".new", "w").write(told)
    os.rename(path + ".new", os.path.expanduser("~/count-" + os.environ["SLURM_JOB_ID"]))
    time.sleep(0.2)
'
"""
FIND = f"""
import pathlib, sys
what = bytes.fromhex(open(sys.argv[1]).read())
files = [p for p in pathlib.Path("{STORE}").glob(sys.argv[2]) if p.is_file()]
print(len(files), sum(what in p.read_bytes() for p in files))
"""


def start_secret(lab: Lab) -> Counter:
    job = Counter(lab, lab.sbatch(SECRET, "--reclaim=on", "-D", "/shared/home/alice"), "alice")
    lab.wait("the first count", lambda: job.seen(check=False))
    job.wait_for_session("ACTIVE")
    return job


def found(lab: Lab, job: Counter) -> tuple[int, int]:
    """Files of the session in the store, and how many of them hold the secret."""
    secret = f"/shared/home/alice/secret-{job.job}"
    words = ("/opt/slurm-reclaim/bin/python", "-c", FIND, secret, f"*/{job.job}.*/**/*")
    files, hits = lab.out("n1", *words).split()
    return int(files), int(hits)


@pytest.fixture
def encrypted(lab: Lab) -> Iterator[None]:
    def restart() -> None:
        for node in NODES:
            lab.restart_daemon(node, "reclaim-agent")

    try:
        for node in NODES:
            lab.exec(node, "sh", "-c", f"cat > {PLACE}", stdin="[store]\nencrypt = true\n")
        restart()
        yield
    finally:
        for node in NODES:
            lab.exec(node, "rm", "-f", PLACE)
        restart()


def test_in_the_clear_the_secret_is_found(lab):
    """Else the next test could not fail."""
    job = start_secret(lab)
    try:
        job.reclaim("hibernate")
        files, hits = found(lab, job)
        assert (files > 2, hits) == (True, 1)
    finally:
        job.cancel()


def test_encrypted_it_is_not_and_comes_back_after_a_change_of_keys(lab, encrypted):
    with only(lab, "n1"):
        job = start_secret(lab)
    try:
        was = job.seen()
        job.reclaim("hibernate")
        files, hits = found(lab, job)
        assert (files > 2, hits) == (True, 0)
        for node in ("ctl", *NODES):
            lab.exec(node, "cp", "-p", KEYS, f"{KEYS}.before")
        lab.exec("ctl", "reclaim", "key", "new", "--after", "0s")
        newer = lab.out("ctl", "base64", "-w0", KEYS)
        for node in NODES:
            lab.exec(node, "sh", "-c", f"base64 -d > {KEYS}", stdin=newer)
        with only(lab, "n2"):
            job.reclaim("restore")
            job.wait_for_session("ACTIVE")
        now = job.counts_on()
        assert (now.pid, now.node, now.memory) == (was.pid, "n2", True)
        job.reclaim("hibernate")  # by the new key, beside blocks of the old one
        assert found(lab, job)[1] == 0
        job.reclaim("restore")
        assert job.counts_on().pid == was.pid
    finally:
        for node in ("ctl", *NODES):
            lab.exec(node, "sh", "-c", f"test -e {KEYS}.before && mv {KEYS}.before {KEYS}; true")
        job.cancel()
