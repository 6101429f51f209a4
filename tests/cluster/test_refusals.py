"""Bad input: one clear message that says what and what to do, and nothing changes."""

from __future__ import annotations

import json

import pytest

from tests.cluster.sessions import Counter

pytestmark = pytest.mark.cluster
REFUSED = range(20, 30)


@pytest.fixture(scope="module")
def job(lab):
    """A managed session that every refusal must leave alone."""
    counter = Counter.start(lab)
    yield counter
    counter.cancel()


@pytest.fixture
def submitted(lab):
    """Submit without waiting for a session; cancelled afterwards."""
    jobs: list[int] = []

    def submit(*options: str) -> int:
        script = "#!/bin/bash\nsleep 600\n"
        jobs.append(lab.sbatch(script, "-D", "/tmp", "-o", "/dev/null", *options))
        return jobs[-1]

    yield submit
    for one in jobs:
        lab.exec("ctl", "scancel", str(one), check=False)


def said(lab, *words: str, user: str = "alice") -> tuple[int, str]:
    done = lab.exec("ctl", "reclaim", *words, user=user, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def running(lab, job: int) -> None:
    def states() -> set[str]:
        return set(lab.out("ctl", "squeue", "-h", "-j", str(job), "-o", "%T").split())

    lab.wait("it to run", lambda: states() == {"RUNNING"})


@pytest.mark.parametrize("verb", ["hibernate", "restore", "show"])
def test_an_unknown_job(lab, verb):
    code, text = said(lab, verb, "4000000")
    assert code in REFUSED
    assert "4000000" in text
    assert "hint:" in text


@pytest.mark.parametrize(
    ("form", "word"),
    [("12.batch", "step"), ("12+0", "heterogeneous"), ("12_[1-3]", "several"), ("x", "job id"),
     ("0", "job id"), ("-1", ""), ("12; id", "job id")],
)  # fmt: skip
def test_job_id_forms(lab, form, word):
    code, text = said(lab, "hibernate", "--", form)
    assert code in (*REFUSED, 2)
    assert word in text


def test_someone_elses_job(lab, job):
    before = job.seen()
    for verb in ("hibernate", "restore", "show", "keep", "explain", "events"):
        code, text = said(lab, verb, str(job.job), user="bob")
        assert code == 26, verb
        assert "alice" not in text, "nothing of another's session is told"
    listed = json.loads(lab.out("ctl", "reclaim", "list", "--json", user="bob"))["sessions"]
    told = json.loads(lab.out("ctl", "reclaim", "events", "--json", user="bob"))["events"]
    assert all(row["user"] == "bob" for row in listed)
    assert all(event["job_id"] != job.job for event in told)
    assert job.counts_on().pid == before.pid
    assert job.state == "RUNNING"


def test_an_operator_may(lab, job):
    assert str(job.job) in lab.out("ctl", "reclaim", "list", user="olga")
    before = job.seen()
    job.reclaim("hibernate", user="olga")
    job.reclaim("restore", user="olga")
    assert job.counts_on().pid == before.pid


def test_a_job_that_is_not_managed(lab, submitted):
    job = submitted("--reclaim=off", "--job-name=spawner-jupyterhub")
    running(lab, job)
    code, text = said(lab, "hibernate", str(job))
    assert code == 25
    assert "not managed" in text
    assert "--reclaim=on" in text


def test_a_job_that_waits(lab, submitted):
    job = submitted("--reclaim=on", "--begin=now+1hour")
    for verb in ("hibernate", "restore"):
        code, text = said(lab, verb, str(job))
        assert code == 27
        assert f"job {job} is PENDING" in text
        assert "hint:" in text
    assert lab.out("ctl", "squeue", "-h", "-j", str(job), "-o", "%T|%r") == "PENDING|BeginTime"


def test_a_job_that_is_over(lab, counter):
    job = counter()
    lab.exec("ctl", "sh", "-c", f"echo 0 > {job.path}.exit")
    job.wait_for_session("ENDED")
    for verb in ("hibernate", "restore"):
        code, text = said(lab, verb, str(job.job))
        assert code == 27
        assert f"job {job.job} can't be {verb}d: it is ENDED" in text
    assert job.state == "COMPLETED"


def test_a_whole_array(lab, counter):
    """One task has to be named; nobody else is told which there are."""
    task = counter("--array=1-2", task=2)
    other = Counter(lab, task.job, "alice", 1)
    other.wait_for_session("ACTIVE")
    for verb in ("hibernate", "restore"):
        code, text = said(lab, verb, str(task.job))
        assert code == 28
        assert f"{task.job}_1, {task.job}_2" in text
        code, text = said(lab, verb, str(task.job), user="bob")
        assert code == 26
        assert f"{task.job}_" not in text
    assert {each.state for each in (task, other)} == {"RUNNING"}
    for each in (task, other):
        each.counts_on()


def test_a_job_that_can_not_be_requeued(lab):
    job = Counter.start(lab, "--no-requeue")
    try:
        before = job.seen()
        code, text = said(lab, "hibernate", str(job.job))
        assert code == 21
        assert "requeue" in text.lower()
        assert f"scontrol update JobId={job.job} Requeue=1" in text
        assert job.counts_on().pid == before.pid
    finally:
        job.cancel()


def test_a_job_on_two_nodes(lab, submitted):
    job = submitted("--reclaim=on", "--nodes=2")
    running(lab, job)
    code, text = said(lab, "hibernate", str(job))
    assert code in REFUSED
    assert f"job {job} runs on 2 nodes" in text
    assert "only single-node batch jobs" in text
    running(lab, job)


def test_a_heterogeneous_job(lab, submitted):
    job = submitted("--reclaim=on", "-n1", ":", "-n1")
    running(lab, job)
    for number in (job, job + 1):
        code, text = said(lab, "hibernate", str(number))
        assert code == 21
        assert "part of a heterogeneous job" in text
        assert "hint: only single-node batch jobs" in text
    running(lab, job)


def test_a_bad_option_of_sbatch(lab):
    done = lab.exec("ctl", "sbatch", "--reclaim=maybe", "--wrap", "true", user="alice", check=False)
    assert done.returncode != 0
    assert "maybe" in done.stderr
    assert "on" in done.stderr


def test_restore_of_what_is_not_hibernated(lab, job):
    code, text = said(lab, "restore", str(job.job))
    assert code == 27
    assert "ACTIVE" in text


@pytest.mark.parametrize(
    ("break_it", "mend_it"),
    [("mv /shared/reclaim /shared/away", "mv /shared/away /shared/reclaim"),
     ("chmod 755 /shared/reclaim", "chmod 700 /shared/reclaim"),
     ("mount --bind -o ro /shared/reclaim /shared/reclaim", "umount /shared/reclaim")],
    ids=["missing", "readable by others", "read-only"],
)  # fmt: skip
def test_the_store_is_not_usable(lab, job, break_it, mend_it):
    before, node = job.seen(), job.node
    lab.exec(node, "sh", "-c", break_it)
    try:
        code, text = said(lab, "hibernate", str(job.job))
        assert code >= 20
        assert "/shared/reclaim" in text
        assert job.counts_on().pid == before.pid
        assert job.session()["state"] == "ACTIVE"
    finally:
        lab.exec(node, "sh", "-c", mend_it)


def test_a_configuration_with_several_mistakes(lab):
    text = '[stor]\npath = "x"\n[agent]\ninterval = 5\n[controller]\nport = 99999\n'
    lab.exec("ctl", "sh", "-c", "cat > /tmp/bad.toml", stdin=text)
    done = lab.exec("ctl", "reclaim", "--config", "/tmp/bad.toml", "config", "check", check=False)
    assert done.returncode == 11
    for word in ("stor", "store", "agent.interval", "controller.port"):
        assert word in done.stderr


def test_reclaimd_is_away(lab):
    lab.stop_daemon("ctl", "reclaimd")
    try:
        code, text = said(lab, "list")
        assert code == 35
        assert "reclaimd" in text
    finally:
        lab.start_daemon("ctl", "reclaimd")
