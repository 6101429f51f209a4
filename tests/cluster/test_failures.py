"""What goes wrong on the way, for real: nobody loses anything."""

from __future__ import annotations

import time

import pytest

from tests.cluster.sessions import Counter, only, processes, saved_by_slurm

pytestmark = pytest.mark.cluster
STORE = "/shared/reclaim"


def runs_on(job: Counter, before) -> None:
    """Same process, same place, counting, and Slurm never noticed."""
    after = job.counts_on()
    assert (after.pid, after.node, after.memory) == (before.pid, before.node, True)
    assert job.state == "RUNNING"
    assert job.squeue("%r") == "None"
    assert "T" not in job.lab.out(before.node, "ps", "-o", "stat=", "-u", job.user).split()


def is_whole(job: Counter, before) -> None:
    """Hibernated; and restored it is what it was."""
    job.reclaim("restore")
    job.wait_for("RUNNING")
    after = job.counts_on()
    assert (after.pid, after.memory) == (before.pid, True)
    assert after.count > before.count
    assert job.output().count("started") == 1


def test_no_room_in_the_store_is_said_before_anything_is_frozen(lab, counter):
    job = counter(mib=50)
    before = job.seen()
    lab.exec(job.node, "mount", "-t", "tmpfs", "-o", "size=20m,mode=700", "none", STORE)
    lab.exec(job.node, "touch", f"{STORE}/.slurm-reclaim-store")
    try:
        done = job.reclaim("hibernate", check=False)
        assert done.returncode != 0
        assert "free" in done.stderr
        runs_on(job, before)
    finally:
        lab.exec(before.node, "umount", STORE)
    assert job.session()["state"] == "ACTIVE"


@pytest.mark.parametrize("room", ["size=60m", "size=1g,nr_inodes=7"], ids=["bytes", "inodes"])
def test_a_store_that_fills_up_half_way(lab, counter, room):
    job = counter(mib=30)
    before, node = job.seen(), job.node
    drop_in = "/etc/slurm-reclaim/conf.d/zz-test.toml"
    lab.exec(node, "sh", "-c", f"printf '[store]\\nmin_free = \"1MiB\"\\n' > {drop_in}")
    lab.exec(node, "mount", "-t", "tmpfs", "-o", f"{room},mode=700", "none", STORE)
    lab.exec(node, "touch", f"{STORE}/.slurm-reclaim-store")
    # not mapped by any process, so the estimate does not see it, and the archive meets the end
    pid = lab.out(node, "pgrep", "-u", "alice", "-f", f"count-{job.ref}").split()[0]
    lab.exec(node, "dd", "if=/dev/urandom", f"of=/proc/{pid}/root/dev/shm/big", "bs=1M", "count=50")
    try:
        lab.restart_daemon(node, "reclaim-agent")
        done = job.reclaim("hibernate", check=False)
        assert done.returncode != 0, done.stdout
        assert "No space left" in done.stderr
        runs_on(job, before)
        assert lab.exec(node, "find", STORE, "-name", "*.pack").stdout == ""
    finally:
        lab.exec(node, "umount", STORE)
        lab.exec(node, "rm", drop_in)
        lab.restart_daemon(node, "reclaim-agent")
    job.reclaim("hibernate")
    is_whole(job, before)


def test_a_traced_session_is_refused_with_the_reason(lab, counter):
    job = counter()
    before = job.seen()
    pid = lab.out(job.node, "pgrep", "-u", "alice", "-f", f"count-{job.ref}").split()[0]
    lab.exec(job.node, "sh", "-c", f"strace -p {pid} -o /dev/null >/dev/null 2>&1 & sleep 0.5")
    try:
        done = job.reclaim("hibernate", check=False)
        assert done.returncode == 21, done.stderr
        assert "traced" in done.stderr
    finally:
        tracer = lab.out(job.node, "sh", "-c", f"grep TracerPid /proc/{pid}/status | cut -f2")
        if tracer != "0":
            lab.exec(job.node, "kill", tracer)
    runs_on(job, before)


def test_a_refused_requeue_restores_in_place(lab, counter):
    job = counter("--mem=1500", mib=600)
    before = job.seen()
    job.reclaim("hibernate", "--no-wait")
    lab.wait("the dump", lambda: job.session()["state"] == "HIBERNATING")
    lab.exec("ctl", "scontrol", "update", f"JobId={job.job}", "Requeue=0")
    job.wait_for_session("ACTIVE")
    assert "requeue-refused" in job.kinds(), job.kinds()
    after = job.counts_on()
    assert (after.pid, after.node, after.memory) == (before.pid, before.node, True)
    assert job.state == "RUNNING"
    lab.exec("ctl", "scontrol", "update", f"JobId={job.job}", "Requeue=1")
    job.reclaim("hibernate")
    is_whole(job, before)


def test_a_node_that_can_not_restore_gives_the_job_back(lab, counter):
    with only(lab, "n1"):
        job = counter()
    before = job.seen()
    job.reclaim("hibernate")
    lab.exec("n2", "chmod", "-x", "/usr/sbin/criu")
    try:
        with only(lab, "n2"):
            done = job.reclaim("restore", check=False)
            assert done.returncode != 0
            held = job.wait_for_session("HIBERNATED")
        assert held["bad_nodes"] == ["n2"]
        assert "n2" in held["reason"]
        assert job.state == "SPECIAL_EXIT"
        assert "n2" in job.squeue("%k")
        assert processes(lab, "n2") == []
    finally:
        lab.exec("n2", "chmod", "+x", "/usr/sbin/criu")
    is_whole(job, before)
    assert job.node != "n2"


def test_landing_where_no_agent_runs_is_bounded(lab, counter):
    with only(lab, "n1"):
        job = counter()
    before = job.seen()
    job.reclaim("hibernate")
    lab.stop_daemon("n2", "reclaim-agent", kill=True)
    try:
        with only(lab, "n2"):
            lab.exec("ctl", "scontrol", "update", f"JobId={job.job}", "ExcNodeList=")
            lab.exec("ctl", "scontrol", "release", str(job.job))
            job.wait_for("RUNNING")
            assert job.node == "n2"
            job.wait_for("SPECIAL_EXIT", 100)
    finally:
        lab.start_daemon("n2", "reclaim-agent")
    job.wait_for_session("HIBERNATED")
    is_whole(job, before)


@pytest.mark.parametrize("delay", [0.0, 0.3, 0.6, 0.9, 1.3, 2.0])
def test_an_agent_killed_while_hibernating(lab, counter, delay):
    job = counter("--mem=1000", mib=400)
    before, node = job.seen(), job.node
    job.reclaim("hibernate", "--no-wait")
    time.sleep(delay)
    lab.restart_daemon(node, "reclaim-agent", kill=True)
    state = lab.wait(
        "one truth or the other",
        lambda: job.session()["state"] in ("ACTIVE", "HIBERNATED") and job.session()["state"],
        90,
    )
    if state == "ACTIVE":
        runs_on(job, before)
        job.reclaim("hibernate")
    is_whole(job, before)


@pytest.mark.parametrize("delay", [0.0, 0.5, 1.0, 2.0])
def test_a_controller_killed_while_hibernating(lab, counter, delay):
    job = counter("--mem=700", mib=200)
    before = job.seen()
    job.reclaim("hibernate", "--no-wait")
    time.sleep(delay)
    lab.restart_daemon("ctl", "reclaimd", kill=True)
    job.wait_for_session("HIBERNATED", 90)
    is_whole(job, before)


def test_slurmctld_away_between_the_commit_and_the_requeue(lab, counter):
    job = counter("--mem=700", mib=200)
    before = job.seen()
    saved_by_slurm(lab, job)
    job.reclaim("hibernate", "--no-wait")
    lab.stop_daemon("ctl", "slurmctld", kill=True)
    try:
        lab.wait("the commit", lambda: "checkpoint-committed" in job.kinds(), 60)
        time.sleep(3)
        assert job.session()["state"] == "REQUEUING"
    finally:
        lab.start_daemon("ctl", "slurmctld")
    job.wait_for_session("HIBERNATED", 90)
    is_whole(job, before)


# Once one of our programs at the store is there, it is killed after so many seconds.
KILL = """for i in $(seq 600); do
  pid=$(pgrep -f '[s]tore.{program} import') && sleep {delay} && kill -9 $pid && exit 0
  sleep 0.02
done; exit 1"""


@pytest.mark.parametrize("delay", [0.0, 0.2, 0.4, 0.7])
def test_the_program_that_takes_the_dump_in_is_killed(lab, counter, delay):
    """CRIU's pipes break in the middle of a dump."""
    job = counter("--mem=1000", mib=400)
    before, node = job.seen(), job.node
    job.reclaim("hibernate", "--no-wait")
    lab.exec(node, "sh", "-c", KILL.format(program="capture", delay=delay), check=False)
    state = lab.wait(
        "one truth or the other",
        lambda: job.session()["state"] in ("ACTIVE", "HIBERNATED") and job.session()["state"],
        90,
    )
    if state == "ACTIVE":
        runs_on(job, before)
        job.reclaim("hibernate")
    is_whole(job, before)


@pytest.mark.parametrize("delay", [0.0, 0.2, 0.5])
def test_the_program_that_gives_the_image_back_is_killed(lab, counter, delay):
    job = counter("--mem=1000", mib=400)
    before = job.seen()
    job.reclaim("hibernate")
    with only(lab, "n2"):
        job.reclaim("restore", "--no-wait")
        lab.exec("n2", "sh", "-c", KILL.format(program="serve", delay=delay), check=False)
        state = lab.wait(
            "one truth or the other",
            lambda: job.session()["state"] in ("ACTIVE", "HIBERNATED") and job.session()["state"],
            90,
        )
    if state == "HIBERNATED":
        is_whole(job, before)
    else:
        after = job.counts_on()
        assert (after.pid, after.memory) == (before.pid, True)


def test_an_agent_killed_while_restoring(lab, counter):
    job = counter("--mem=1000", mib=400)
    before = job.seen()
    job.reclaim("hibernate")
    with only(lab, "n2"):
        job.reclaim("restore", "--no-wait")
        job.wait_for("RUNNING")
        lab.restart_daemon("n2", "reclaim-agent", kill=True)
        state = lab.wait(
            "one truth or the other",
            lambda: job.session()["state"] in ("ACTIVE", "HIBERNATED") and job.session()["state"],
            90,
        )
    if state == "HIBERNATED":
        is_whole(job, before)
    else:
        after = job.counts_on()
        assert (after.pid, after.memory) == (before.pid, True)


def test_a_node_lost_while_its_session_is_hibernated(lab, counter):
    with only(lab, "n1"):
        job = counter()
    before = job.seen()
    job.reclaim("hibernate")
    lab.kill("n1")
    try:
        lab.wait("n1 to be excluded", lambda: "n1" in job.excluded, 40)
        is_whole(job, before)
        assert job.node != "n1"
    finally:
        lab.boot("n1")


def test_a_damaged_image_is_never_started(lab, counter):
    job = counter(mib=20)
    job.reclaim("hibernate")
    pack = lab.out("ctl", "sh", "-c", f"ls {STORE}/*/{job.job}.*/packs/*.pack")
    lab.exec("ctl", "sh", "-c", f"printf XYZ | dd of={pack} bs=1 seek=500 conv=notrunc")
    done = job.reclaim("restore", check=False)
    assert done.returncode != 0
    held = job.wait_for_session("HIBERNATED")
    assert "is not what was written" in held["reason"]
    assert processes(lab, "n1") == []
    assert job.output().count("started") == 1


def test_a_second_controller_refuses_to_start(lab):
    done = lab.exec("ctl", "runuser", "-u", "slurm-reclaim", "--", "reclaimd", check=False)
    assert done.returncode != 0
    assert "journal" in done.stderr
    assert lab.out("ctl", "reclaim", "list") is not None


def test_a_second_agent_refuses_to_start_and_takes_nothing_away(lab):
    second = lab.exec("n1", "timeout", "60", "reclaim-agent", check=False)
    assert second.returncode == 20, second.stderr
    holder = lab.out("n1", "pgrep", "-o", "-f", "/usr/sbin/reclaim-agent").strip()
    assert f"another reclaim-agent (pid {holder} on n1)" in second.stderr
    # The socket on which jobs ask is the first one's still.
    assert "agent.sock answers" in lab.exec("n1", "reclaim", "check", check=False).stdout


def test_a_node_whose_store_is_not_mounted_never_starts_from_scratch(lab, counter):
    """The controller is away, too, so that nobody can say that there is an image."""
    with only(lab, "n1"):
        job = counter()
    before = job.seen()
    job.reclaim("hibernate")
    lab.stop_daemon("ctl", "reclaimd")
    lab.exec("n2", "mount", "-t", "tmpfs", "-o", "mode=700", "none", STORE)
    try:
        with only(lab, "n2"):
            change = ("scontrol", "update", f"JobId={job.job}", "ExcNodeList=", "StartTime=now")
            lab.exec("ctl", *change)
            lab.exec("ctl", "scontrol", "release", str(job.job))
            job.wait_for("RUNNING")
            assert job.node == "n2"
            lab.start_daemon("ctl", "reclaimd")
            job.wait_for("SPECIAL_EXIT", 100)
    finally:
        lab.start_daemon("ctl", "reclaimd")
        lab.exec("n2", "umount", STORE)
    job.wait_for_session("HIBERNATED")
    is_whole(job, before)


def test_a_session_with_odd_names_does_not_take_the_agent_away(lab, counter):
    job = counter()
    script = (
        "#!/bin/bash\nexec python3 -c 'import ctypes,time;"
        'ctypes.CDLL(None).prctl(15,b"ab\\xff\\xfe",0,0,0); time.sleep(600)\'\n'
    )
    odd = lab.sbatch(script, "--reclaim=on", "-w", job.node, "-D", "/tmp", "-o", "/dev/null")
    try:
        lab.wait("it", lambda: "RUNNING" in lab.out("ctl", "squeue", "-h", "-j", str(odd), "-o%T"))
        time.sleep(5)
        before = job.seen()
        job.reclaim("hibernate")
        is_whole(job, before)
    finally:
        lab.exec("ctl", "scancel", str(odd))


def test_a_job_with_other_steps_is_refused(lab, counter):
    job = counter()
    before = job.seen()
    step = "srun --overlap --jobid={0} sleep 300 >/dev/null 2>&1 </dev/null & echo $!"
    lab.exec("ctl", "sh", "-c", step.format(job.job), user="alice")
    lab.wait("the step", lambda: f"{job.job}.0" in lab.out("ctl", "squeue", "-s", "-h"))
    done = job.reclaim("hibernate", check=False)
    assert done.returncode == 21, done.stderr
    assert "job-step" in done.stderr
    runs_on(job, before)
    lab.exec("ctl", "scancel", f"{job.job}.0")
    lab.wait("its end", lambda: f"{job.job}.0" not in lab.out("ctl", "squeue", "-s", "-h"))
    job.reclaim("hibernate")
    is_whole(job, before)


def test_an_output_file_that_was_deleted_is_refused_by_name(lab, counter):
    job = counter()
    before = job.seen()
    lab.exec("ctl", "rm", f"/shared/home/alice/{job.job}.out")
    done = job.reclaim("hibernate", check=False)
    assert done.returncode == 21, done.stderr
    assert "output-file" in done.stderr
    runs_on(job, before)


def test_a_job_that_fails_before_its_restore_is_held_again(lab, counter):
    """Slurm can't open its output file, so that the job is FAILED before anything of ours runs."""
    job = counter()
    before = job.seen()
    job.reclaim("hibernate")
    out = f"/shared/home/alice/{job.job}.out"
    lab.exec("ctl", "sh", "-c", f"mv {out} {out}.away; mkdir {out}", user="alice")
    try:
        job.reclaim("restore", "--no-wait")
        lab.wait("the mishap", lambda: "FAILED" in job.session()["reason"], 60)
        job.wait_for("SPECIAL_EXIT")
        job.wait_for_session("HIBERNATED")
    finally:
        lab.exec("ctl", "sh", "-c", f"rmdir {out}; mv {out}.away {out}", user="alice")
    is_whole(job, before)


def test_files_in_private_places_are_put_back_without_roots_rights(lab, counter):
    """A user can put a symbolic link where a directory was; root must not follow it."""
    job = counter()
    pid = lab.out(job.node, "pgrep", "-u", "alice", "-f", f"count-{job.ref}").split()[0]
    inside = f"/proc/{pid}/root/dev/shm"
    lab.exec(job.node, "mkdir", f"{inside}/d", user="alice")
    lab.exec(job.node, "touch", f"{inside}/d/evil.sh", user="alice")
    job.reclaim("hibernate")
    job.reclaim("restore")
    job.counts_on()
    pid = lab.out(job.node, "pgrep", "-u", "alice", "-f", f"count-{job.ref}").split()[0]
    assert "alice alice" in lab.out(job.node, "ls", "-l", f"/proc/{pid}/root/dev/shm/d/evil.sh")
