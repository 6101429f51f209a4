"""What a site changes while a session sleeps: limits, nodes, partitions (field case C58)."""

from __future__ import annotations

from tests.cluster.conftest import Lab

CONF = "/etc/slurm/slurm.conf"


def test_a_hibernated_job_counts_for_the_limit_on_jobs_and_can_come_back(lab: Lab, counter) -> None:
    limit = ("sacctmgr", "-i", "modify", "user", "alice", "set")
    job = counter()
    before = job.seen()
    lab.exec("ctl", *limit, "maxsubmitjobs=1")
    try:
        job.reclaim("hibernate")
        done = lab.exec("ctl", "sbatch", "--wrap", "true", user="alice", check=False)
        assert "AssocMaxSubmitJobLimit" in done.stderr
        job.reclaim("restore")
        assert job.seen().pid == before.pid
        job.counts_on()
    finally:
        lab.exec("ctl", *limit, "maxsubmitjobs=-1")


def test_who_waits_for_a_node_is_told_why(lab: Lab, counter) -> None:
    job = counter()
    job.reclaim("hibernate")
    nodes = lab.out("ctl", "sinfo", "-h", "-o", "%N", "-p", "main").strip()
    lab.exec("ctl", "scontrol", "update", f"nodename={nodes}", "state=drain", "reason=test")
    try:
        job.reclaim("restore", "--no-wait")
        step = lab.wait(
            "Slurm's reason", lambda: (job.session()["progress"] or {}).get("step"), patience=60
        )
        assert "DRAINED" in str(step)
        done = job.reclaim("restore", "--timeout", "3s", check=False)
        assert "DRAINED" in done.stderr
    finally:
        lab.exec("ctl", "scontrol", "update", f"nodename={nodes}", "state=resume")
    job.wait_for_session("ACTIVE")
    job.counts_on()


def test_a_partition_that_is_gone_ends_the_job_and_its_checkpoint_stays(lab: Lab, counter) -> None:
    lab.exec("ctl", "cp", CONF, "/root/slurm.conf.before")
    lab.exec("ctl", "sh", "-c", f"echo 'PartitionName=course Nodes=ALL State=UP' >> {CONF}")
    lab.exec("ctl", "scontrol", "reconfigure")
    try:
        job = counter("--partition=course")
        job.reclaim("hibernate")
    finally:
        lab.exec("ctl", "cp", "/root/slurm.conf.before", CONF)
        lab.exec("ctl", "scontrol", "reconfigure")
    job.wait_for_session("ENDED")
    assert "NODE_FAIL" in job.session()["reason"]
    assert "checkpoint" in job.session()["reason"]
    listed = lab.out("ctl", "reclaim", "checkpoints", "list")
    assert f"/{job.job}.2001." in listed
    done = job.reclaim("restore", check=False)
    assert "ENDED" in done.stderr
    assert "export" in done.stderr
