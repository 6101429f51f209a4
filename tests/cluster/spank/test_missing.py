# SPDX-License-Identifier: Apache-2.0
"""Anything of ours that is missing: the job starts as if we weren't there (S10)."""

from __future__ import annotations

import pytest

from tests.cluster.spank.bench import LIBEXEC, Bench

pytestmark = pytest.mark.cluster


def unmanaged(bench: Bench, problem: str) -> None:
    text, end = bench.run("readlink /proc/self/ns/mnt; exit 5")
    job = bench.jobs[-1]
    assert end == ("FAILED", "5:0")
    assert text == bench.root("readlink /proc/self/ns/mnt").strip()
    note = bench.root(f"cat /run/slurm-reclaim/missed/{job}")
    assert f"job={job}\nuid=2001\n" in note
    assert problem in note


def test_no_agent(bench):
    bench.stop_agent()
    unmanaged(bench, "couldn't reach the agent")


def test_no_run_directory(bench):
    bench.stop_agent()
    bench.root("mv /run/slurm-reclaim /run/slurm-reclaim.away")
    try:
        unmanaged(bench, "No such file")
    finally:
        bench.root("rm -rf /run/slurm-reclaim; mv /run/slurm-reclaim.away /run/slurm-reclaim")


def test_no_libexec(bench):
    bench.root(f"mv {LIBEXEC} {LIBEXEC}.away")
    try:
        unmanaged(bench, "reclaim-init: No such file")
    finally:
        bench.root(f"mv {LIBEXEC}.away {LIBEXEC}")


@pytest.mark.parametrize("libexec", [True, False])
def test_image_and_no_agent(bench, libexec):
    """Never from scratch: parked, then held again, by Slurm itself."""
    job = bench.submit("echo started; sleep 300", "--open-mode=append")
    bench.has(job, "started")
    bench.lab.exec("ctl", "scontrol", "requeuehold", str(job))
    bench.lab.wait("held", lambda: bench.squeue(job) == "PENDING", 60)
    bench.stop_agent()
    store = f"/shared/spank-store-{job}"
    bench.root(
        f"mkdir -p {store}/lab/{job}.2001.1/1; touch {store}/.slurm-reclaim-store;"
        f"touch {store}/lab/{job}.2001.1/1/manifest.json;"
        "cp -a /var/lib/slurm-reclaim/plugin.conf /root/plugin.conf.was 2>/dev/null;"
        f"printf 'store={store}\ncluster=lab\nrestore_wait=2\nscontrol=/usr/bin/scontrol\n"
        "held_state=SpecialExit\n' > /var/lib/slurm-reclaim/plugin.conf"
    )
    if not libexec:
        bench.root(f"mv {LIBEXEC} {LIBEXEC}.away")
    try:
        bench.lab.exec("ctl", "scontrol", "release", str(job))
        bench.starts(job)
        bench.lab.wait("held again", lambda: bench.squeue(job) == "SPECIAL_EXIT", 90)
        assert bench.text(job).count("started") == 1
        assert bench.field(job, "Restarts") == "2"
    finally:
        bench.root(
            f"rm -rf {store} /var/lib/slurm-reclaim/plugin.conf;"
            "mv /root/plugin.conf.was /var/lib/slurm-reclaim/plugin.conf 2>/dev/null;"
            f"mv {LIBEXEC}.away {LIBEXEC} 2>/dev/null", check=False,
        )  # fmt: skip
