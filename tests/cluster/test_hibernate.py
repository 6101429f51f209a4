"""Hibernate and restore of small sessions: what Slurm shows, what the owner gets back."""

from __future__ import annotations

import time

import pytest

from tests.cluster.sessions import Counter, only, processes

pytestmark = pytest.mark.cluster


def test_what_slurm_shows(lab, counter):
    job = counter("--comment=mine")
    lab.exec("ctl", "scontrol", "update", f"JobId={job.job}", "AdminComment=JS1:abc")
    node = job.node
    job.reclaim("hibernate")
    assert job.state == "SPECIAL_EXIT"
    comment = job.squeue("%k")
    assert "hibernated" in comment
    assert f"reclaim restore {job.job}" in comment
    rows = lab.out(
        "ctl", "sacct", "-DXnP", "-j", str(job.job), "-o", "State,NodeList,AdminComment"
    ).splitlines()
    assert rows[0].startswith(f"REQUEUED|{node}|")
    assert "JS1:abc" in rows[0]
    assert "slurm-reclaim" in rows[0]
    job.reclaim("restore")
    job.counts_on()
    lab.wait("the owner's own comment", lambda: job.squeue("%k") == "mine")


def test_the_tree_is_gone_and_comes_back_with_its_pids(lab, counter):
    job = counter(mib=50)
    before, node = job.seen(), job.node
    job.reclaim("hibernate")
    assert processes(lab, node) == []
    stopped = job.seen()
    time.sleep(1)
    assert job.seen() == stopped, "nothing ran on while hibernated"
    job.reclaim("restore")
    after = job.counts_on()
    assert after.count > stopped.count
    assert (after.pid, after.memory) == (before.pid, True)


def test_the_time_limit_goes_on_and_nobody_waits_two_minutes(lab, counter):
    job = counter("--time=30")
    job.reclaim("hibernate")
    held = job.squeue("%l")
    assert held in ("30:00", "29:00"), held
    began = time.monotonic()
    job.reclaim("restore")
    job.wait_for("RUNNING")
    assert time.monotonic() - began < 60


def test_the_owners_own_release_restores(lab, counter):
    job = counter()
    job.reclaim("hibernate")
    count = job.seen().count
    lab.exec("ctl", "scontrol", "release", str(job.job), user="alice")
    job.wait_for("RUNNING")
    lab.wait("it to go on", lambda: job.seen().count > count)
    assert job.output().count("started") == 1, "the script must not run again"
    job.wait_for_session("ACTIVE")
    assert "released" in job.kinds()


@pytest.mark.parametrize("mode", ["truncate", "append"])
def test_the_output_file_goes_on(lab, counter, mode):
    job = counter(f"--open-mode={mode}")
    assert job.output() == "started 0"
    for cycle in (1, 2):
        job.reclaim("hibernate")
        job.reclaim("restore")
        job.counts_on()
        said = job.output().splitlines()
        assert said[0] == "started 0"
        assert len([line for line in said if line.startswith("started")]) == 1, said
        # the session itself writes on, through the descriptor it always had
        pid = session_pid(lab, job)
        lab.exec(job.node, "sh", "-c", f"echo after {cycle} >> /proc/{pid}/fd/1")
        assert job.output().splitlines()[-1] == f"after {cycle}"


def session_pid(lab, job: Counter) -> str:
    """PID, as the node has it, of the counting process."""
    found = lab.out(job.node, "pgrep", "-u", job.user, "-f", f"count-{job.job}")
    return found.split()[0]


def test_scancel_leaves_nothing(lab, counter):
    job = counter()
    job.reclaim("hibernate")
    job.reclaim("restore")
    job.counts_on()
    node = job.node
    job.cancel()
    lab.wait("no process left", lambda: processes(lab, node) == [], 40)
    lab.wait("accounting", lambda: lab.job_state(job.job).startswith("CANCELLED"))
    job.wait_for_session("ENDED")


@pytest.mark.parametrize("status", [0, 3])
def test_the_exit_status_is_the_sessions(lab, counter, status):
    job = counter()
    job.reclaim("hibernate")
    job.reclaim("restore")
    job.counts_on()
    lab.exec("ctl", "sh", "-c", f"echo {status} > {job.path}.exit")

    def row() -> str:
        said = lab.out("ctl", "sacct", "-nXP", "-j", str(job.job), "-o", "State,ExitCode")
        return said if said.startswith(("FAILED", "COMPLETED")) else ""

    assert lab.wait("the end", row) == (f"FAILED|{status}:0" if status else "COMPLETED|0:0")


def test_a_cancelled_hibernated_job_has_ended(lab, counter):
    job = counter()
    job.reclaim("hibernate")
    job.cancel()
    job.wait_for_session("ENDED")


def test_an_array_task(lab, counter):
    job = counter("--array=4", task=4)
    assert job.ref == f"{job.job}_4"
    assert job.ref in lab.out("ctl", "reclaim", "list", user="alice")
    assert job.ref in lab.out("ctl", "reclaim", "events", user="alice")
    job.reclaim("hibernate")
    assert job.state == "SPECIAL_EXIT"
    job.reclaim("restore")
    job.counts_on()


def test_the_last_task_of_an_array_alone(lab, counter):
    """Its number is that of the array, by which Slurm changes every task of it."""
    last = counter("--array=1-3", task=3)
    others = [Counter(lab, last.job, "alice", task) for task in (1, 2)]
    for job in others:
        job.wait_for_session("ACTIVE")
    assert last.squeue("%A") == str(last.job)
    last.reclaim("hibernate")
    for job in others:
        assert job.state == "RUNNING"
        job.counts_on()
    last.reclaim("restore")
    last.counts_on()
    assert [job.session()["restarts"] for job in others] == [0, 0]


def test_a_suspended_job_is_left_alone(lab, counter):
    """Saved like that it would come back stopped."""
    job = counter()
    lab.exec("ctl", "scontrol", "suspend", str(job.job))
    job.wait_for("SUSPENDED")
    done = job.reclaim("hibernate", check=False)
    assert done.returncode == 27
    assert f"job {job.job} is suspended" in done.stderr
    lab.exec("ctl", "scontrol", "resume", str(job.job))
    job.counts_on()


def test_a_restore_lands_where_it_fits(lab, counter):
    """The constraint is on the held job, so that a plain release is safe, too."""
    with only(lab, "n1"):
        job = counter()
    job.reclaim("hibernate")
    lab.stop_daemon("n1", "reclaim-agent")
    try:
        lab.wait("n1 to be excluded", lambda: "n1" in job.excluded, 40)
        lab.exec("ctl", "scontrol", "release", str(job.job), user="alice")
        job.wait_for("RUNNING")
        assert job.node != "n1"
        job.counts_on()
    finally:
        lab.start_daemon("n1", "reclaim-agent")


def test_hibernate_twice_and_restore_twice_say_so(lab, counter):
    job = counter()
    job.reclaim("hibernate")
    again = job.reclaim("hibernate", check=False)
    assert again.returncode == 27, again.stderr
    job.reclaim("restore")
    job.counts_on()
    again = job.reclaim("restore", check=False)
    assert again.returncode == 27, again.stderr


def program(lab, text: str) -> Counter:
    """A managed job that runs `text`, which says how far it is in the file $SAY."""
    job = lab.sbatch(f"#!/bin/bash\nexport SAY=$HOME/count-$SLURM_JOB_ID\n{text}\n",
                     "--reclaim=on", "-D", "/shared/home/alice", "-o", "%j.out")  # fmt: skip
    one = Counter(lab, job, "alice")
    one.wait_for("RUNNING")
    one.wait_for_session("ACTIVE")
    lab.wait("its first word", lambda: lab.exec("ctl", "cat", one.path, check=False).stdout)
    return one


LOOP = "i=0; while :; do i=$((i+1)); echo $i > $SAY; sleep 0.3; done"


@pytest.mark.parametrize(
    "text",
    [
        f"script -qc '{LOOP}' /dev/null",  # waits in poll() and takes EINTR for the end
        f"tail -f $HOME/.profile /dev/null & {LOOP}",  # inotify
        f"(trap '' HUP; setsid bash -c '{LOOP}') & wait",
        f"sleep 100000 & {LOOP}",
        'exec python3 -c \'import os,time\ni=0\nwhile 1:\n i+=1\n open(os.environ["SAY"],"w")'
        ".write(str(i))\n time.sleep(0.3)'",
    ],
    ids=["script", "inotify", "daemon", "sleep", "exec"],
)
def test_programs_go_on(lab, text):
    lab.exec("ctl", "sh", "-c", "touch ~/.profile", user="alice")
    one = program(lab, text)
    try:
        one.reclaim("hibernate")
        word = lab.out("ctl", "cat", one.path)
        one.reclaim("restore")
        lab.wait("it to go on", lambda: lab.out("ctl", "cat", one.path) not in ("", word))
        time.sleep(3)
        assert one.state == "RUNNING"
        assert one.session()["state"] == "ACTIVE"
    finally:
        one.cancel()


def test_a_zombie_stands_in_nobodys_way(lab, counter):
    """Its parent may never ask how it ended. CRIU writes any number as the name of its thread."""
    script = (
        "#!/bin/bash\n"
        "python3 -c 'import os, time\n"
        "os.fork() or os._exit(0)\n"
        "time.sleep(9999)' &\n"
        "python3 /shared/inside/counter.py $HOME/count-$SLURM_JOB_ID 0\n"
    )
    counter().cancel()  # it puts counter.py there
    words = ["--reclaim=on", "--output", "%j.out", "-D", "/shared/home/alice"]
    job = Counter(lab, lab.sbatch(script, *words), "alice")
    job.wait_for_session("ACTIVE")
    lab.wait("the first count", lambda: job.seen(check=False))
    job.reclaim("hibernate")
    job.reclaim("restore")
    job.counts_on()
    states = lab.exec(job.node, "ps", "-o", "state=", "-u", "alice").stdout.split()
    assert states.count("Z") == 1
    job.cancel()


def test_a_node_booted_anew_is_known_by_its_agent(lab, counter):
    """Slurm shows the job running on for minutes: it is too young to be missed at once."""

    def lives() -> int:
        return job.kinds().count("restore-succeeded")

    with only(lab, "n1"):
        job = counter()
        before = job.seen()
        for life in (2, 4, 6):  # now and then it is just the time for the node's next registration
            job.reclaim("hibernate")
            job.reclaim("restore")
            job.wait_for("RUNNING")
            job.counts_on()
            job.wait_for_session("ACTIVE")
            lab.kill("n1")
            lab.boot("n1")
            lab.wait("the next life", lambda life=life: lives() == life, 60)
            after = job.counts_on()
            assert (after.pid, after.node, after.memory) == (before.pid, "n1", True)
            if "node-rebooted" in job.kinds():
                break
    told = next(event for event in job.events() if event["kind"] == "node-rebooted")
    assert "n1 was booted anew" in told["reason"]
    assert job.output().count("started") == 1
