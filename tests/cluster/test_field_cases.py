"""What others met in the field and what no other file tries; docs/cases.md has all of them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.cluster.notebook import put
from tests.cluster.sessions import Counter, configured, only
from tests.cluster.test_failures import is_whole
from tests.cluster.test_hibernate import program

pytestmark = pytest.mark.cluster
STORE = "/shared/reclaim"


# -- C05: Slurm, its accounting or MUNGE do not answer -------------------------------------------


@contextmanager
def hanging(lab) -> Iterator[None]:
    """slurmctld takes connections and says nothing."""
    lab.exec("ctl", "sh", "-c", "kill -STOP $(cat /run/slurm/slurmctld.pid)")
    try:
        yield
    finally:
        lab.exec("ctl", "sh", "-c", "kill -CONT $(cat /run/slurm/slurmctld.pid)")


@contextmanager
def stopped(lab, daemon: str) -> Iterator[None]:
    lab.stop_daemon("ctl", daemon, kill=True)
    try:
        yield
    finally:
        lab.start_daemon("ctl", daemon)


SILENT: dict[str, Callable[..., AbstractContextManager[None]]] = {
    "slurmctld hangs": hanging,
    "munged is gone": lambda lab: stopped(lab, "munged"),
}


@pytest.fixture(scope="module")
def impatient(lab) -> Iterator[None]:
    """A command of Slurm's that takes longer than 2 s has not answered."""
    with configured(lab, "ctl", "reclaimd", '[slurm]\ntimeout = "2s"\n'):
        yield


@pytest.mark.parametrize("what", SILENT)
def test_what_does_not_answer_ends_nothing(lab, counter, impatient, what):
    """C05: between the commit and the requeue, with a session that sleeps beside it."""
    asleep = counter()
    asleep.reclaim("hibernate")
    job = counter("--mem=700", mib=200)
    before = job.seen()
    complaints = lab.logs("ctl", "reclaimd").count("Slurm does not answer")
    job.reclaim("hibernate", "--no-wait")
    with SILENT[what](lab):
        manifest = f"ls {STORE}/*/{job.job}.*/0/manifest.json"
        lab.wait("the commit", lambda: not lab.exec(
            "ctl", "sh", "-c", manifest, check=False).returncode, 60)  # fmt: skip
        lab.wait(
            "reclaimd to notice",
            lambda: lab.logs("ctl", "reclaimd").count("Slurm does not answer") > complaints,
        )
        if what == "slurmctld hangs":
            lab.wait("the news of it", lambda: job.session()["state"] == "REQUEUING")
            assert asleep.session()["state"] == "HIBERNATED"
        else:
            assert job.reclaim("show", check=False).returncode == 36
    job.wait_for_session("HIBERNATED", 90)
    for one in (job, asleep):
        kinds = one.kinds()
        assert kinds.count("checkpoint-committed") == kinds.count("requeue-observed") == 1
        assert (one.session()["state"], one.state) == ("HIBERNATED", "SPECIAL_EXIT")
    is_whole(job, before)


def test_without_slurmdbd_owners_act_and_strangers_do_not(lab, counter):
    """C05."""
    job = counter()
    before = job.seen()
    with stopped(lab, "slurmdbd"):
        assert job.reclaim("show", user="bob", check=False).returncode in (26, 31)
        job.reclaim("hibernate")
        assert job.reclaim("restore", user="bob", check=False).returncode in (26, 31)
        is_whole(job, before)


# -- C65: load on slurmctld -----------------------------------------------------------------------


def test_slurmctld_is_asked_once_an_interval_however_many_jobs(lab, counter):
    """C65: by its own count of requests, with sessions, one asleep, and an array that waits."""
    with configured(lab, "ctl", "reclaimd", '[slurm]\ninterval = "2s"\n'):
        counter().reclaim("hibernate")
        for _ in range(3):
            counter()
        many = ["--array=0-199", "--begin=now+1hour", "-o", "/dev/null"]
        array = lab.sbatch("#!/bin/sh\ntrue\n", *many)
        try:
            lab.exec("ctl", "sdiag", "--reset")
            time.sleep(30)
            said = lab.out("ctl", "sdiag")
            line = r"^\s*(\S+)\s+\( *\d+\) count:(\d+)"
            counts = {name: int(count) for name, count in re.findall(line, said, re.MULTILINE)}
            # 15 intervals. squeue asks for the partitions, too; the nodes are asked once a minute.
            assert 13 <= counts["REQUEST_JOB_INFO"] <= 17, said
            assert counts["slurm-reclaim"] <= 2 * counts["REQUEST_JOB_INFO"] + 4, said
        finally:
            lab.exec("ctl", "scancel", str(array))


# -- C09: who may read what ----------------------------------------------------------------------


@contextmanager
def careless(lab, node: str, daemon: str) -> Iterator[None]:
    """The daemon runs with umask 000."""
    unit = f"/etc/systemd/system/{daemon}.service"
    lab.exec(node, "cp", unit, "/root/")
    try:
        lab.exec(node, "sh", "-ec", f"sed -i '/^UMask=/d' {unit}; "
                 f"sed -i 's/^\\[Service\\]/&\\nUMask=0000/' {unit}")  # fmt: skip
        lab.restart_daemon(node, daemon)
        yield
    finally:
        lab.exec(node, "cp", f"/root/{daemon}.service", unit)
        lab.restart_daemon(node, daemon)


FOUND = """
for place in {places}; do
    find $place ! -type l ! -type s \\( -perm /022 -o -type f -readable \\) 2>/dev/null
done; true
"""


def test_nothing_is_open_to_others_whatever_the_umask(lab, counter):
    """C09: neither images nor records, keys, logs or sockets' directories."""
    with only(lab, "n1"), careless(lab, "ctl", "reclaimd"), careless(lab, "n1", "reclaim-agent"):
        job = counter(mib=5)
        before = job.seen()
        job.reclaim("hibernate")
        mine = {"n1": f"{STORE} /var/lib/slurm-reclaim /run/slurm-reclaim /var/tmp/slurm-reclaim*",
                "ctl": "/var/lib/slurm-reclaim /run/slurm-reclaim"}  # fmt: skip
        for node, places in mine.items():
            find = FOUND.format(places=places)
            found = lab.out(node, "sh", "-c", find, user="bob").splitlines()
            assert found == [], node
        umask = "grep Umask /proc/$(pgrep -o -f 'reclaim-agent$')/status"
        assert "0000" in lab.out("n1", "sh", "-c", umask)
        is_whole(job, before)


# -- C17: connections ----------------------------------------------------------------------------

ECHO = 7117
SERVER = """
import socket, threading
server = socket.create_server(("::", %d), family=socket.AF_INET6, dualstack_ipv6=True)
def talk(one):
    while data := one.recv(100): one.sendall(data)
while True: threading.Thread(target=talk, args=(server.accept()[0],), daemon=True).start()
"""


def link_local(lab, node: str) -> str:
    """The address of its first interface on the link."""
    said = lab.out(node, "ip", "-6", "-o", "address", "show", "scope", "link")
    return said.split("inet6 ")[1].split("/")[0]


def test_connections_inside_live_and_outside_ones_are_closed(lab):
    """C17: over loopback in both families, with both ends in the session; to another host by IPv4
    and by a link-local address, of a client that waits for the server's word."""
    put(lab, "talker.py")
    script = f"timeout 300 python3 -c '{SERVER % ECHO}' >/dev/null 2>&1 </dev/null &"
    lab.exec("ctl", "sh", "-c", script)
    lab.wait("it", lambda: f":{ECHO}" in lab.out("ctl", "ss", "-Htln"))
    outside = [f"ctl {ECHO}", f"{link_local(lab, 'ctl')}%eth0 {ECHO}"]
    words = " ".join(f"'{each}'" for each in outside)
    with only(lab, "n1"):
        job = program(lab, f"exec python3 /shared/inside/talker.py $SAY {words}")
    try:
        lab.wait("its second word", lambda: job.seen().count > 1)
        before = job.seen()
        job.reclaim("hibernate")
        with only(lab, "n2"):
            job.reclaim("restore")
        after = job.counts_on()
        assert (after.pid, after.node) == (before.pid, "n2")

        def fate() -> set[str]:
            return set(json.loads(lab.out("ctl", "cat", f"{job.path}.outside")).values())

        lab.wait("its clients to hear of it", lambda: "open" not in fate())
        assert fate() <= {"closed", "error 104", "error 107"}  # ECONNRESET, ENOTCONN
    finally:
        job.cancel()


# -- C54: a shell on a terminal ------------------------------------------------------------------


def test_a_shell_on_a_terminal_goes_on(lab):
    """C54: its jobs, stopped ones too, its size and its settings."""
    put(lab, "shell_host.py")
    with only(lab, "n1"):
        job = program(
            lab, "touch $SAY; echo > $SAY; exec python3 /shared/inside/shell_host.py $SAY"
        )
    try:
        Shell(lab, job).check()
    finally:
        job.cancel()


class Shell:
    def __init__(self, lab, job: Counter) -> None:
        self.lab, self.job = lab, job

    def shows(self) -> str:
        return self.lab.exec("ctl", "cat", f"{self.job.path}.out", check=False).stdout

    def type(self, line: str, answer: str) -> str:
        """What it shows from then on, once that has `answer`."""
        before = len(self.shows())
        write = f"echo '{line}' >> {self.job.path}.in"
        self.lab.exec("ctl", "sh", "-c", write, user="alice")
        self.lab.wait(f"{answer!r} after {line!r}", lambda: answer in self.shows()[before:])
        return self.shows()[before:]

    def run(self, line: str) -> str:
        """What a command of the shell's prints."""
        return self.type(f'{line}; echo en""d', "end\n")

    def check(self) -> None:
        self.lab.wait("the prompt", lambda: "$ " in self.shows())
        self.run("stty -echo")
        self.type("python3 -i -q", ">>> ")
        self.type("x = 42", ">>> ")
        self.type("^Z", "Stopped")
        self.type("less /etc/services", "\x1b[7m")
        self.type("^Z", "Stopped")
        self.job.reclaim("hibernate")
        with only(self.lab, "n2"):
            self.job.reclaim("restore")
        assert self.job.node == "n2"
        assert self.run("jobs").count("Stopped") == 2
        assert "50 200" in self.run("stty size")
        assert " -echo " in self.run("stty -a")
        self.type("fg %1", "python3")
        assert "84" in self.type("print(2 * x)", ">>> ")
        self.type("exit()", "$ ")
        self.type("fg %2", "less")
        self.type("q", "$ ")
        assert "Stopped" not in self.run("jobs")
