"""C11: file systems on which root is nobody, as NFS with root_squash.

The kernel of test machines has no NFS. inside/squash.py serves a directory through FUSE and makes
every request with the ids of who asks, root's with those of nobody, which is what such a server
does. NFS's own caching, locks and silly renames are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.notebook import put
from tests.cluster.sessions import only
from tests.cluster.test_failures import is_whole, runs_on

pytestmark = pytest.mark.cluster
HOME = "/shared/home/alice"
STORE = "/shared/reclaim"
FUSE = "10 229"  # linux/miscdevice.h


@contextmanager
def squashed(lab, path: str, *nodes: str, owner: str = "") -> Iterator[None]:
    """`owner`: the uid of who alone may enter it, whatever the modes say."""
    put(lab, "squash.py")
    try:
        for node in nodes:
            serve = f"[ -e /dev/fuse ] || mknod /dev/fuse c {FUSE}; exec python3 "
            lab.exec(node, "sh", "-c", f"{serve} /shared/inside/squash.py {path} {path} {owner}")
        yield
    finally:
        for node in nodes:
            lab.exec(node, "umount", "-l", path, check=False)


def test_a_session_in_a_home_that_root_can_not_enter(lab, opener):
    """Its program, a library, its output and what it writes lie there."""
    make = f"cd {HOME}; rm -rf venv; mkdir venv; cp /usr/bin/python3 venv/python; "
    make += "cp /usr/lib/x86_64-linux-gnu/libz.so.1 venv/ours.so; echo x > venv/data"
    lab.exec("ctl", "sh", "-ec", make, user="alice")
    lab.exec("ctl", "chmod", "700", HOME)
    try:
        with squashed(lab, HOME, "n1", "n2"):
            assert lab.exec("n1", "cat", f"{HOME}/venv/data", check=False).returncode
            assert lab.exec("n1", "touch", f"{HOME}/of-root", check=False).returncode
            with only(lab, "n1"):
                job = opener("lib:venv/ours.so", "r+:venv/data", "mib:20",
                             program=f"{HOME}/venv/python")  # fmt: skip
            before = job.seen()
            job.reclaim("hibernate")
            with only(lab, "n2"):
                job.reclaim("restore")
            after = job.counts_on()
            assert (after.pid, after.node) == (before.pid, "n2")
            job.reclaim("hibernate")
            lab.exec("ctl", "sh", "-c", f"echo more >> {HOME}/venv/data", user="alice")
            done = job.reclaim("restore", check=False)
            assert "venv/data: 2 bytes then, 7 now" in done.stderr
            lab.exec("ctl", "sh", "-c", f"echo x > {HOME}/venv/data", user="alice")
            job.reclaim("restore")
            assert job.counts_on().pid == before.pid
            job.cancel()
            job.wait_for_session("ENDED")
    finally:
        lab.exec("ctl", "chmod", "755", HOME)


def test_files_that_their_owner_alone_may_look_at(lab, opener):
    """As on a FUSE mount of the owner's, or with Kerberos: root can't tell what is open there."""
    own = f"{HOME}/own"
    make = f"rm -rf {own}; mkdir {own}; cp /usr/lib/x86_64-linux-gnu/libz.so.1 {own}/ours.so; "
    lab.exec("ctl", "sh", "-ec", f"{make} echo x > {own}/data", user="alice")
    with squashed(lab, own, "n1", "n2", owner="2001"):
        assert lab.exec("n1", "stat", f"{own}/data", check=False).returncode
        with only(lab, "n1"):
            job = opener(f"lib:{own}/ours.so", f"r+:{own}/data")
        before = job.seen()
        job.reclaim("hibernate")
        with only(lab, "n2"):
            job.reclaim("restore")
        after = job.counts_on()
        assert (after.pid, after.node) == (before.pid, "n2")
        job.cancel()
        job.wait_for_session("ENDED")


def test_a_store_that_root_can_not_enter_is_said_before_anything_is_frozen(lab, counter):
    with only(lab, "n1"):
        job = counter()
    before = job.seen()
    with squashed(lab, STORE, "n1"):
        done = job.reclaim("hibernate", check=False)
        assert done.returncode != 0
        assert "root of this node may not write to it" in done.stderr
        runs_on(job, before)
        said = lab.exec("n1", "reclaim", "check", check=False)
        assert said.returncode == 1
        assert STORE in said.stdout
    job.reclaim("hibernate")
    is_whole(job, before)
