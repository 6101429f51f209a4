"""The job's own cgroup in the layouts that Slurm has (C62)."""

from __future__ import annotations

import pytest

from slurm_reclaim.adapters.proc import cgroup

V1_MOUNTS = """\
30 25 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
33 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct
34 30 0:31 / /sys/fs/cgroup/memory rw shared:13 - cgroup cgroup rw,memory
35 30 0:32 / /sys/fs/cgroup/freezer rw shared:14 - cgroup cgroup rw,freezer
36 30 0:33 / /sys/fs/cgroup/systemd rw shared:15 - cgroup cgroup rw,xattr,name=systemd
"""
HYBRID_MOUNTS = (
    V1_MOUNTS + "37 30 0:34 / /sys/fs/cgroup/unified rw shared:16 - cgroup2 cgroup2 rw,nsdelegate\n"
)
V2_MOUNTS = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
TOP = "/sys/fs/cgroup"
SCOPE = "/system.slice/slurmstepd.scope"


def v1(top, job="job_7", cpuacct=True):
    path = f"/{top}/uid_2001/{job}/step_batch"
    return (
        "9:name=systemd:/system.slice/slurmd.service\n"
        f"7:freezer:{path}\n"
        f"4:memory:{path}/task_0\n"
        f"2:cpu,cpuacct:{path + '/task_0' if cpuacct else '/system.slice/slurmd.service'}\n"
    )


@pytest.mark.parametrize(
    ("name", "mounts", "cgroups", "expected"),
    [
        (
            "v1",
            V1_MOUNTS,
            v1("slurm"),
            {
                "freezer": f"{TOP}/freezer/slurm/uid_2001/job_7",
                "memory": f"{TOP}/memory/slurm/uid_2001/job_7",
                "cpu": f"{TOP}/cpu,cpuacct/slurm/uid_2001/job_7",
                "cpuacct": f"{TOP}/cpu,cpuacct/slurm/uid_2001/job_7",
            },
        ),
        (
            "several slurmd, hybrid, no jobacct_gather/cgroup",
            HYBRID_MOUNTS,
            v1("slurm_n1", cpuacct=False) + "0::/system.slice/slurmd.service\n",
            {
                "freezer": f"{TOP}/freezer/slurm_n1/uid_2001/job_7",
                "memory": f"{TOP}/memory/slurm_n1/uid_2001/job_7",
            },
        ),
        (
            "v2",
            V2_MOUNTS,
            f"0::{SCOPE}/job_7/step_batch/user/task_0\n",
            {"": f"{TOP}{SCOPE}/job_7"},
        ),
        (
            "v2, several slurmd",
            V2_MOUNTS,
            "0::/system.slice/n1_slurmstepd.scope/job_7/step_extern/user/task_special\n",
            {"": f"{TOP}/system.slice/n1_slurmstepd.scope/job_7"},
        ),
        (
            "v2, SLUID (Slurm 26.05)",
            V2_MOUNTS,
            f"0::{SCOPE}/s5K1KKYAYG5D00/step_0/user/task_3\n",
            {"": f"{TOP}{SCOPE}/s5K1KKYAYG5D00"},
        ),
        ("not in a job", V2_MOUNTS, "0::/user.slice/user-0.slice/session-2.scope\n", {}),
        ("no task/cgroup at all", V1_MOUNTS, "7:freezer:/\n4:memory:/\n2:cpu,cpuacct:/\n", {}),
        ("mounted nowhere", "", v1("slurm"), {}),
        (
            "part of the hierarchy",
            f"1 2 0:1 {SCOPE} /mnt/cg\\040x rw - cgroup2 cgroup2 rw\n",
            f"0::{SCOPE}/job_7/step_batch/user\n",
            {"": "/mnt/cg x/job_7"},
        ),
        (
            "another part",
            "1 2 0:1 /system.slice/slurm /mnt rw - cgroup2 cgroup2 rw\n",
            f"0::{SCOPE}/job_7/step_batch/user\n",
            {},
        ),
    ],
)
def test_the_jobs_directories(name, mounts, cgroups, expected):
    assert cgroup.job_directories(cgroups, cgroup.mounts(mounts)) == expected


def test_cpu_time_by_either_version(tmp_path):
    (tmp_path / "cpuacct.usage").write_text("1500000000\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n")
    folder = str(tmp_path)
    assert cgroup.CpuClock({"cpuacct": folder}).seconds() == 1.5
    assert cgroup.CpuClock({"": folder}).seconds() == 2.5
    assert cgroup.CpuClock({"cpuacct": folder, "": folder}).seconds() == 1.5
    for nothing in ({}, {"memory": folder}, {"cpuacct": "/nowhere"}, {"": "/nowhere"}):
        clock = cgroup.CpuClock(nothing)
        assert (clock.counts, clock.seconds()) == (False, None)


def test_memory_by_either_version(tmp_path):
    rows = "cache 9\nrss 1\nshmem 1\nhierarchical_memory_limit 7\ntotal_rss 300\ntotal_shmem 20\n"
    (tmp_path / "memory.stat").write_text(rows)
    assert cgroup.memory_bytes({"memory": str(tmp_path)}) == 320
    (tmp_path / "memory.stat").write_text("anon 400\nfile 9\nshmem 50\n")
    assert cgroup.memory_bytes({"": str(tmp_path)}) == 450
    assert cgroup.memory_bytes({}) is None
    assert cgroup.memory_bytes({"memory": str(tmp_path)}) is None


def test_block_bytes_by_either_version(tmp_path):
    (tmp_path / "io.stat").write_text(
        "259:0 rbytes=100 wbytes=20 rios=1 wios=1 dbytes=9 dios=0\n8:0 rbytes=3 wbytes=0 rios=1\n"
    )
    assert cgroup.block_bytes({"": str(tmp_path)}) == 123
    (tmp_path / "blkio.throttle.io_service_bytes_recursive").write_text(
        "259:0 Read 100\n259:0 Write 20\n259:0 Total 120\nTotal 120\n"
    )
    assert cgroup.block_bytes({"blkio": str(tmp_path)}) == 120
    assert cgroup.block_bytes({"": "/nowhere"}) is None


def test_kills_for_want_of_memory_by_either_version(tmp_path):
    (tmp_path / "job_1/step_0").mkdir(parents=True)
    (tmp_path / "job_1/step_0/memory.oom_control").write_text("oom_kill_disable 0\noom_kill 2\n")
    (tmp_path / "job_1/step_0/memory.events").write_text("oom 7\noom_kill 3\n")
    place = str(tmp_path)
    for names, controllers, kills in (("memory", {"memory"}, 2), ("", {cgroup.V2}, 3)):
        mount = cgroup.Mount("/slurm", place, frozenset(controllers))
        text = f"4:cpu:/slurm/job_2\n5:{names}:/slurm/job_1/step_0\n"
        assert cgroup.oom_kills(text, [mount]) == kills
        assert cgroup.oom_kills(text.replace("/slurm", "/slurm2"), [mount]) == 0
    assert cgroup.oom_kills("", []) == 0
