"""Nodes that differ in what a session depends on: the CPU, and memory in huge pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.notebook import put
from tests.cluster.sessions import Counter, only

pytestmark = pytest.mark.cluster
DROP_IN = "/etc/slurm-reclaim/conf.d/zz-test.toml"


# -- two CPUs ---------------------------------------------------------------------------------


@contextmanager
def without_avx2(lab, *nodes: str) -> Iterator[None]:
    """As the kernel of such a node shows it."""
    take = "sed 's/ avx2 / /' /proc/cpuinfo > /run/cpuinfo; mount --bind /run/cpuinfo /proc/cpuinfo"
    try:
        for node in nodes:
            lab.exec(node, "sh", "-ec", take)
            lab.restart_daemon(node, "reclaim-agent")
        yield
    finally:
        for node in nodes:
            lab.exec(node, "umount", "/proc/cpuinfo", check=False)
            lab.restart_daemon(node, "reclaim-agent")


@contextmanager
def other_registers(lab, node: str) -> Iterator[None]:
    """As its CRIU tells of it."""
    put(lab, "other_cpu.py")
    text = '[agent]\ncriu = "/usr/local/sbin/criu"\n'
    other = ("-m", "755", "/shared/inside/other_cpu.py", "/usr/local/sbin/criu")
    try:
        lab.exec(node, "install", *other)
        lab.exec(node, "sh", "-c", f"cat > {DROP_IN}", stdin=text)
        lab.restart_daemon(node, "reclaim-agent")
        yield
    finally:
        lab.exec(node, "rm", "-f", DROP_IN, "/usr/local/sbin/criu")
        lab.restart_daemon(node, "reclaim-agent")


def names(lab) -> set[str]:
    return set(lab.out("ctl", "sinfo", "-h", "-N", "-p", "main", "-o", "%N").split())


def refused(job: Counter) -> str:
    """What is said once no node fits by what agents have reported."""
    job.lab.wait("all nodes excluded", lambda: set(job.excluded) == names(job.lab), 40)
    done = job.reclaim("restore", "--no-wait", check=False)
    assert done.returncode == 20, done.stderr
    return str(done.stderr)


def test_of_two_other_cpus_each_is_named_by_what_it_lacks(lab, counter):
    with only(lab, "n1"):
        job = counter()
    before = job.seen()
    job.reclaim("hibernate")
    with other_registers(lab, "n2"):
        with without_avx2(lab, *(names(lab) - {"n2"})):
            said = refused(job)
            assert "n1: its CPU lacks avx2" in said
            assert re.search(r"n2: its CPU saves \d+ bytes of registers \(xsave\)", said)
        # the node that is like the one it came from is chosen, and no other
        lab.wait("n1 to fit", lambda: "n1" not in job.excluded, 40)
        assert "n2" in job.excluded
        job.reclaim("restore")
        after = job.counts_on()
        assert (after.pid, after.memory) == (before.pid, True)
        assert after.node != "n2"


# -- huge pages -------------------------------------------------------------------------------

POOL = Path("/proc/sys/vm/nr_hugepages")
WANTED = 16  # of 2 MiB; all nodes have the machine's
MAPS = """
import mmap, os
size = 4 << 20
{}
pages[:] = b"h" * size
kept.append(pages)
"""
MMAP = "pages = mmap.mmap(-1, size, flags=mmap.{} | mmap.MAP_ANONYMOUS | 0x40000)"
PRIVATE, SHARED = MMAP.format("MAP_PRIVATE"), MMAP.format("MAP_SHARED")
MEMFD = "f = os.memfd_create('huge', 4); os.ftruncate(f, size); pages = mmap.mmap(f, size)"
COPIED = MEMFD.replace("mmap(f, size)", "mmap(f, size, flags=mmap.MAP_PRIVATE)")
NAMED = (
    "f = os.open(f'/dev/hugepages/{os.getpid()}', os.O_RDWR | os.O_CREAT);"
    "os.ftruncate(f, size); pages = mmap.mmap(f, size)"
)
TRANSPARENT = "pages = mmap.mmap(-1, size); pages.madvise(mmap.MADV_HUGEPAGE)"


@pytest.fixture(scope="module")
def pool(lab) -> Iterator[None]:
    before = POOL.read_text()
    POOL.write_text(str(WANTED))
    try:
        if int(POOL.read_text()) < WANTED:
            pytest.skip("the machine has no huge pages to spare")
        yield
    finally:
        POOL.write_text(before)


@pytest.mark.parametrize(
    ("how", "name"),
    [(PRIVATE, "huge-pages"), (COPIED, "huge-pages"), (NAMED, "file-in-memory")],
    ids=["private", "copied on write", "hugetlbfs"],
)
def test_huge_pages_that_can_not_come_back_are_named_before(lab, opener, pool, how, name):
    mount = "mkdir -p /dev/hugepages; mount -t hugetlbfs -o mode=1777 none /dev/hugepages"
    if how == NAMED:
        lab.exec("n1", "sh", "-c", mount)
    try:
        with only(lab, "n1"):
            job = opener(f"py:{MAPS.format(how)}")
        before = job.seen()
        done = job.reclaim("hibernate", check=False)
        assert done.returncode == 21, done.stderr
        assert name in done.stderr
        assert job.counts_on().pid == before.pid
        job.cancel()
        job.wait_for_session("ENDED")
    finally:
        if how == NAMED:
            lab.exec("n1", "umount", "-l", "/dev/hugepages")


def test_huge_pages_come_back_where_enough_are_free(lab, opener, pool):
    things = [f"py:{MAPS.format(how)}" for how in (SHARED, MEMFD, TRANSPARENT)]
    job = opener(*things)
    before = job.seen()
    job.reclaim("hibernate")
    POOL.write_text("1")
    try:
        said = refused(job)
        assert re.search(r"n1: it has .* in huge pages, the checkpoint needs 8.0 MiB", said)
    finally:
        POOL.write_text(str(WANTED))
    lab.wait("a node with enough", lambda: set(job.excluded) != names(lab), 40)
    job.reclaim("restore")
    assert job.counts_on().pid == before.pid
