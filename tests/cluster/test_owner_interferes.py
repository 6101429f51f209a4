"""What runs as the session's owner while it is saved is the owner's to stop, and to continue."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from tests.cluster.sessions import Counter, configured

pytestmark = pytest.mark.cluster
# From a login of its owner's on the node, as fast as a shell can.
WATCH = "timeout 60 sh -c 'until {}; do :; done'"


def hurried(lab) -> AbstractContextManager[None]:
    return configured(lab, "n1", "reclaim-agent", '[agent]\ndump_timeout = "8s"\n')


def interfering(lab, job: Counter, command: str) -> str:
    """What a hibernation says that `command` gets in the way of."""
    before = job.seen()
    lab.exec("n1", "sh", "-c", f"{WATCH.format(command)} >/dev/null 2>&1 &", user=job.user)
    said = job.reclaim("hibernate", check=False)
    assert said.returncode != 0
    assert job.counts_on().pid == before.pid
    assert job.state == "RUNNING"
    return said.stdout + said.stderr


def test_an_owner_who_stops_tar_keeps_nobody_waiting(lab, counter):
    with hurried(lab):
        job = counter("-w", "n1")
        # So much that it takes tar a while; not mapped by any process, so that CRIU leaves it.
        pid = lab.out("n1", "pgrep", "-u", job.user, "-f", f"count-{job.ref}").split()[0]
        big = f"/proc/{pid}/root/dev/shm/big"
        lab.exec("n1", "dd", "if=/dev/urandom", f"of={big}", "bs=1M", "count=100")
        lab.exec("n1", "chown", f"{job.user}:", big)
        said = interfering(lab, job, f"pkill -STOP -u {job.user} -x tar")
        assert "/dev/shm and /tmp could not be saved: it took too long" in said
        job.reclaim("hibernate")
        assert job.state == "SPECIAL_EXIT"


def test_an_owner_who_continues_it_keeps_it(lab, counter):
    job = counter("-w", "n1", mib=300)
    stopped = f'ps -u {job.user} -o stat=,comm= | grep -q "^T.*python3"'
    said = interfering(lab, job, f"({stopped} && pkill -CONT -u {job.user} -x python3)")
    assert "was continued while the session was being saved" in said
