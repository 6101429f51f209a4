"""What stands around a session: how it is held, logins on its node, and what is said when
something of ours is away."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.conftest import PROGRAM
from tests.cluster.sessions import configured, only, processes, settle

pytestmark = pytest.mark.cluster


def test_a_plain_hold_can_be_chosen(lab, counter):
    with configured(lab, "ctl", "reclaimd", '[slurm]\nheld_state = "held"\n'):
        job = counter()
        before = job.seen()
        job.reclaim("hibernate")
        assert job.state == "PENDING"
        assert job.squeue("%r") == "job requeued in held state"
        job.reclaim("restore")
        assert job.counts_on().pid == before.pid


# -- something of ours is missing (S10) ---------------------------------------------------------


@contextmanager
def missing(lab, path: str) -> Iterator[None]:
    lab.exec("n1", "mv", path, f"{path}.away")
    try:
        yield
    finally:
        lab.exec("n1", "mv", "-f", f"{path}.away", path)


@contextmanager
def stopped(lab, *, kill: bool) -> Iterator[None]:
    lab.stop_daemon("n1", "reclaim-agent", kill=kill)
    try:
        yield
    finally:
        lab.start_daemon("n1", "reclaim-agent")


@contextmanager
def no_config(lab) -> Iterator[None]:
    """The agent does not start without it; one that runs has it in memory."""
    with stopped(lab, kill=False), missing(lab, "/etc/slurm-reclaim/slurm-reclaim.toml"):
        said = lab.call("start-daemon", "n1", "reclaim-agent", check=False)
        assert "there is no such file" in said.stderr
        yield


@contextmanager
def no_socket(lab) -> Iterator[None]:
    try:
        with missing(lab, "/run/slurm-reclaim/agent.sock"):
            yield
    finally:
        lab.restart_daemon("n1", "reclaim-agent")


LIBEXEC = "/usr/libexec/slurm-reclaim"
MISSING = {
    "agent killed": (lambda lab: stopped(lab, kill=True), "the agent"),
    "agent stopped": (lambda lab: stopped(lab, kill=False), "the agent"),
    "config": (no_config, "the agent"),
    "socket": (no_socket, "the agent at /run/slurm-reclaim/agent.sock: No such file"),
    "init": (lambda lab: missing(lab, f"{LIBEXEC}/reclaim-init"), "reclaim-init is missing"),
    "relay": (lambda lab: missing(lab, f"{LIBEXEC}/reclaim-relay"), "reclaim-relay is missing"),
    "exec": (lambda lab: missing(lab, f"{LIBEXEC}/reclaim-exec"), "reclaim-exec is missing"),
}


@pytest.mark.parametrize("what", MISSING)
def test_a_job_starts_as_if_we_were_not_there_and_an_event_says_why(lab, counter, what):
    away, why = MISSING[what]
    with away(lab), only(lab, "n1"):
        job = counter("--job-name=spawner-jupyterhub", reclaim="on", managed=False)
        namespaces = [f"/proc/{pid}/ns/mnt" for pid in (1, job.seen().pid)]
        assert len(set(lab.out("n1", "readlink", *namespaces).split())) == 1

    def said() -> list[str]:
        events = json.loads(lab.out("ctl", "reclaim", "events", "--json"))["events"]
        mine = [e for e in events if e["job_id"] == job.job]
        return [e["reason"] for e in mine if e["kind"] == "job-started-unmanaged"]

    (reason,) = lab.wait("the event", said)
    assert reason.startswith("the job started as if slurm-reclaim weren't there: ")
    assert why in reason
    job.counts_on()
    assert job.session()["state"] == ""


PLUGSTACK = "/etc/slurm/plugstack.conf.d/slurm-reclaim.conf"


@contextmanager
def unnamed(lab) -> Iterator[None]:
    """The plugin isn't named on n1, and the controller knows."""
    try:
        with missing(lab, PLUGSTACK):
            lab.restart_daemon("n1", "reclaim-agent")
            why = "plugstack.conf does not name the plugin there"
            check = ("ctl", "reclaim", "check")
            lab.wait("n1 tells of it", lambda: why in lab.exec(*check, check=False).stdout)
            yield
    finally:
        lab.restart_daemon("n1", "reclaim-agent")


def test_no_session_is_restored_where_the_plugin_is_not_named(lab, counter):
    """Its script would start from the top there, beside its checkpoint."""
    with only(lab, "n1"):
        job = counter()
        before = job.seen()
        job.reclaim("hibernate")
    with unnamed(lab):
        with only(lab, "n1"):
            job.reclaim("restore", "--no-wait")
            settle(5)
            assert job.state == "PENDING"
        after = job.counts_on()
        assert (after.node, after.pid) == ("n2", before.pid)
        assert job.output().count("started") == 1


# -- logins by ssh (pam_slurm_adopt) ------------------------------------------------------------


@contextmanager
def login(lab, node: str) -> Iterator[subprocess.Popen]:
    """alice at a shell's prompt on the node."""
    command = ["exec", "ctl", "--user", "alice", "--", "ssh", "-tt", node]
    shell = subprocess.Popen(
        [str(PROGRAM), "--name", lab.name, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        lab.wait("the prompt", lambda: any("-bash" in p for p in processes(lab, node)))
        yield shell
    finally:
        shell.stdin.close()
        shell.kill()
        shell.wait()


def ssh(lab, node: str, *command: str, user: str = "alice"):
    return lab.exec("ctl", "ssh", "-o", "BatchMode=yes", node, *command, user=user, check=False)


def adopted(lab, node: str, job: int) -> bool:
    """Whether what alice starts there by ssh is in the extern step of the job."""
    groups = ssh(lab, node, "cat", "/proc/self/cgroup").stdout
    return f"/job_{job}/step_extern" in groups


def test_a_login_lands_in_the_job_it_is_for(lab, counter):
    job = counter("-w", "n1")
    with login(lab, "n1"):
        assert adopted(lab, "n1", job.job)
        assert "no active jobs on this node" in ssh(lab, "n2", "true").stderr
        assert ssh(lab, "n2", "true").returncode == 255
        assert ssh(lab, "n1", "true", user="bob").returncode == 255
        job.counts_on()
        job.cancel()
        lab.wait("the end of all of alice", lambda: not processes(lab, "n1"))
    lab.wait("the end of the job", lambda: ssh(lab, "n1", "true").returncode == 255)
    assert processes(lab, "n1") == []


def test_a_login_at_its_prompt_is_closed_like_any_connection(lab, counter):
    with only(lab, "n1"):
        job = counter()
    before = job.seen()
    with login(lab, "n1") as shell:
        job.reclaim("hibernate")
        assert shell.wait(10) == 255
        assert processes(lab, "n1") == []
    with only(lab, "n2"):
        job.reclaim("restore")
    assert job.counts_on().pid == before.pid
    assert adopted(lab, "n2", job.job)
    assert ssh(lab, "n1", "true").returncode == 255


def test_a_program_in_a_login_would_be_lost(lab, counter):
    job = counter("-w", "n1")
    with login(lab, "n1") as shell:
        shell.stdin.write(b"sleep 300\n")
        shell.stdin.flush()
        lab.wait("it", lambda: any("sleep 300" in p for p in processes(lab, "n1")))
        done = job.reclaim("hibernate", check=False)
        assert done.returncode == 21, done.stderr
        assert "job-step: sleep" in done.stderr
        assert "sshd" not in done.stderr
        job.counts_on()
        job.wait_for_session("ACTIVE")
