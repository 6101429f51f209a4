"""The main job on machines with a kernel and a PID 1 each, and root-squashed homes on NFS."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.notebook import Notebook
from tests.cluster.sessions import Counter, only, processes
from tests.vm.conftest import PATIENCE

Start = Callable[..., Counter]


@pytest.fixture
def notebook(lab: Lab):
    started: list[Notebook] = []

    def start(*options: str) -> Notebook:
        started.append(Notebook.start(lab, *options, wait=90 * PATIENCE))
        return started[-1]

    yield start
    for one in started:
        one.cancel()


def test_a_notebook_goes_from_one_machine_to_the_other_and_back(lab: Lab, notebook) -> None:
    with only(lab, "n1"):
        book = notebook()
    book.cell("x = {'kept': 42}; import numpy; a = numpy.arange(1000000)", seconds=60 * PATIENCE)
    for node in ("n2", "n1"):
        book.hibernate()
        assert lab.out("ctl", "squeue", "-h", "-j", str(book.job), "-o", "%t|%C") == "SE|1"
        assert book.state == "SPECIAL_EXIT"
        with only(lab, node):
            book.restore()
        assert book.node == node
        seen = book.cell("print(x, int(a.sum()))", seconds=60 * PATIENCE)
        assert seen.text.strip() == "{'kept': 42} 499999500000"
    assert lab.out("ctl", "sacct", "-nXP", "-j", str(book.job), "-o", "Restarts") == "2"


def test_the_owner_releases_it_with_slurms_own_command(lab: Lab, counter: Start) -> None:
    job = counter()
    job.reclaim("hibernate")
    before = job.seen()
    lab.exec("ctl", "scontrol", "release", str(job.job), user="alice")
    job.wait_for_session("ACTIVE")
    assert job.counts_on().count > before.count
    assert job.seen().pid == before.pid


def test_a_machine_without_power_takes_no_saved_session_with_it(lab: Lab, counter: Start) -> None:
    """One is hibernated, one was and runs again, one was never saved and begins anew, as any."""
    with only(lab, "n1"):
        held, saved, fresh = counter(), counter(), counter()
    was = {}
    for job in (held, saved):
        job.reclaim("hibernate")
        was[job] = job.seen()
    with only(lab, "n1"):
        saved.reclaim("restore")
    assert saved.counts_on().node == "n1"
    lab.kill("n1")
    # Released before, Slurm may start it on the dead node, and then it may live there: S3.
    words = ["sinfo", "-hn", "n1", "-p", "main", "-o", "%T"]
    lab.wait("Slurm to miss n1", lambda: "down" in lab.out("ctl", *words), 120)
    held.reclaim("restore")
    assert held.counts_on().node == "n2"
    assert held.seen().count > was[held].count
    assert saved.session()["state"] != "ACTIVE", "S3: n1 may still run it"
    lab.boot("n1")
    lab.wait("n1 well", lambda: lab.out("ctl", *words) in ("idle", "mixed", "allocated"))
    saved.wait_for_session("ACTIVE", 120)
    for job in (held, saved):
        assert job.counts_on().pid == was[job].pid
        assert job.output().count("started") == 1
    assert saved.seen().count > was[saved].count
    lab.wait("a new run", lambda: "started 1" in fresh.output(), 120)
    fresh.counts_on()


def test_nothing_is_left_of_a_restored_session_that_is_cancelled(lab: Lab, counter: Start) -> None:
    job = counter()
    job.reclaim("hibernate")
    job.reclaim("restore")
    node = job.node
    job.cancel()
    lab.wait("no process left", lambda: not processes(lab, node))
    below = f"/sys/fs/cgroup/system.slice/{node}_slurmstepd.scope/job_{job.job}"
    lab.wait("no cgroup left", lambda: lab.exec(node, "test", "-e", below, check=False).returncode)
