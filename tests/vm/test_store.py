"""The store on NFS itself: packs go past the page cache, and one on which root is nobody is
refused up front (C11)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.sessions import Counter, only

Start = Callable[..., Counter]
STORE = "/shared/reclaim"
MIB = 1 << 20


def written(lab: Lab, node: str) -> tuple[int, int]:
    """Bytes written to /shared since it was mounted: through the page cache, and past it."""
    said = lab.out(node, "cat", "/proc/self/mountstats")
    _, _, ours = said.partition(" mounted on /shared with ")
    row = re.search(r"^\s*bytes:\s+(.+)$", ours, re.M)
    assert row, said
    _, cached, _, direct, *_ = map(int, row[1].split())
    return cached, direct


def test_packs_are_written_past_the_page_cache(lab: Lab, counter: Start) -> None:
    assert lab.out("n1", "stat", "-f", "-c", "%T", STORE) == "nfs"
    job = counter("-w", "n1", mib=64)
    before = job.seen()
    cached, direct = written(lab, "n1")
    job.reclaim("hibernate")
    now_cached, now_direct = written(lab, "n1")
    assert now_direct - direct >= 64 * MIB
    assert now_cached - cached < 16 * MIB
    job.reclaim("restore")
    after = job.counts_on()
    assert (after.pid, after.memory) == (before.pid, True)
    assert "every byte" in job.lab.out("ctl", "reclaim", "checkpoints", "verify", str(job.job))


@contextmanager
def squashed(lab: Lab, owner: str) -> Iterator[None]:
    """On n1 the store is one that the server lets no root into. Each owner's has a name of its
    own: a client may take a directory that was made anew for the old one, for half a minute."""
    there = f"/srv/squash/{owner}"
    make = f"install -d -m 700 {there} && touch {there}/.slurm-reclaim-store && chown -R {owner} "
    lab.exec("ctl", "sh", "-c", make + there)
    lab.exec("n1", "mount", "--bind", f"/squash/{owner}", STORE)
    try:
        yield
    finally:
        lab.exec("n1", "umount", STORE)
        lab.exec("ctl", "rm", "-r", there)


@pytest.mark.parametrize(
    ("owner", "said"),
    [("root", "root of this node may not write to it"), ("nobody", "must belong to root")],
    ids=["root's", "nobody's"],
)
def test_one_where_root_is_nobody_is_refused_up_front(
    lab: Lab, counter: Start, owner: str, said: str
) -> None:
    job = counter("-w", "n1")
    before = job.seen()
    with squashed(lab, owner):
        done = job.reclaim("hibernate", check=False)
        assert done.returncode
        assert said in done.stderr
        assert job.counts_on().pid == before.pid
        checked = lab.exec("n1", "reclaim", "check", check=False)
        assert checked.returncode == 1
        assert STORE in checked.stdout
        assert "no_root_squash" in checked.stdout
    job.reclaim("hibernate")
    with only(lab, "n1"):
        job.reclaim("restore")
    assert job.counts_on().pid == before.pid
