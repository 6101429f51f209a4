"""The main job on a real cluster: a notebook moves between nodes, again and again, whole."""

from __future__ import annotations

import json
import time

import pytest

from tests.cluster.notebook import TOKEN, Notebook, put

pytestmark = pytest.mark.cluster
CYCLES = 5


@pytest.fixture
def notebook(lab):
    started: list[Notebook] = []

    def start(*options: str, **more) -> Notebook:
        started.append(Notebook.start(lab, *options, **more))
        return started[-1]

    yield start
    for one in started:
        one.cancel()


def typed(book: Notebook, *keys: str, name: str = "") -> dict:
    put(book.lab, "terminal.py")
    done = book.lab.exec(
        "ctl", "/opt/jupyter/bin/python", "/shared/inside/terminal.py", book.node,
        str(book.port), TOKEN, *(["--name", name] if name else []),
        user=book.user, stdin="\n".join(keys),
    )  # fmt: skip
    return json.loads(done.stdout)


def look(book: Notebook) -> dict:
    return json.loads(book.cell("zoo.show()").text)


def test_five_cycles_across_the_nodes(lab, notebook):
    put(lab, "zoo.py")
    book = notebook()
    book.cell(
        "import sys; sys.path.insert(0, '/shared/inside'); import zoo\n"
        "zoo.make('/shared/home/alice', 'ctl', 6817); counter = 0"
    )
    book.cell("other = 'second kernel'", nth=1)
    terminal = typed(book, "x=42", "sleep 9999 &", "cat", "^Z")["name"]
    first = look(book)
    assert first["outside"].startswith("closed") is False or first["outside"] == "open"
    assert first["io_uring"] == 38, "io_uring_setup must answer ENOSYS in a managed session"
    nodes, monotonic, began = [book.node], first["monotonic"], time.monotonic()
    for cycle in range(1, CYCLES + 1):
        book.hibernate()
        assert lab.exec("ctl", "squeue", "-h", "-w", nodes[-1]).stdout == ""
        lab.exec("ctl", "scontrol", "update", f"NodeName={nodes[-1]}", "State=DRAIN", "Reason=t")
        try:
            book.restore()
        finally:
            lab.exec("ctl", "scontrol", "update", f"NodeName={nodes[-1]}", "State=RESUME")
        assert book.node != nodes[-1]
        nodes.append(book.node)
        assert book.cell("counter += 1; print(counter)").text.strip() == str(cycle)
        assert book.cell("print(other)", nth=1).text.strip() == "second kernel"
        seen = look(book)
        kept = {k: v for k, v in first.items() if k not in ("looks", "monotonic", "outside")}
        assert {k: seen[k] for k in kept} == kept
        assert seen["looks"] == cycle + 1
        assert seen["outside"].startswith("closed")
        assert monotonic < seen["monotonic"] < monotonic + (time.monotonic() - began) + 1
        monotonic, began = seen["monotonic"], time.monotonic()
        shown = typed(book, "echo v=$x; jobs", name=terminal)["text"]
        assert "v=42" in shown
        assert "Running" in shown
        assert "Stopped" in shown
    assert len(set(nodes)) == 3, nodes
    home = lab.exec("ctl", "cat", "/shared/home/alice/starts").stdout.split()
    assert home.count(str(book.job)) == 1, "the batch script ran exactly once"


def test_what_slurm_shows(lab, notebook):
    book = notebook("--comment=mine")
    lab.exec("ctl", "scontrol", "update", f"JobId={book.job}", "AdminComment=JS1:abc")
    node = book.node
    book.hibernate()
    state, _, reason, comment = book.squeue("%T|%N|%r|%k")
    assert state == "SPECIAL_EXIT"
    assert "hibernated" in comment
    assert f"reclaim restore {book.job}" in comment
    rows = lab.exec(
        "ctl", "sacct", "-D", "-X", "-n", "-P", "-j", str(book.job), "-o",
        "State,NodeList,AdminComment",
    ).stdout.splitlines()  # fmt: skip
    assert rows[0].startswith(f"REQUEUED|{node}|")
    assert "JS1:abc" in rows[0]
    assert "slurm-reclaim" in rows[0]
    book.restore()
    assert book.squeue("%k") == ["mine"]


def test_the_time_limit_goes_on_and_nobody_waits_two_minutes(lab, notebook):
    book = notebook("--time=30")
    limit = "%l|%L"
    time.sleep(3)
    book.hibernate()
    began = time.monotonic()
    book.restore()
    assert time.monotonic() - began < 60
    total, left = book.squeue(limit)
    assert int(total.split(":")[0]) <= 30
    assert left <= total


def test_the_owners_own_release_restores(lab, notebook):
    book = notebook()
    book.cell("x = 'still here'")
    book.hibernate()
    lab.exec("ctl", "scontrol", "release", str(book.job), user="alice")
    book.wait_for_state("RUNNING")
    book.wait_for_server()
    assert book.cell("print(x)").text.strip() == "still here"
    assert lab.exec("ctl", "cat", "/shared/home/alice/starts").stdout.split().count(
        str(book.job)
    ) == 1  # fmt: skip


@pytest.mark.parametrize("mode", ["truncate", "append"])
def test_the_output_file_goes_on(lab, notebook, mode):
    out = f"/shared/home/alice/out-{mode}.txt"
    book = notebook(f"--output={out}", f"--open-mode={mode}")
    write = "import os; os.write(1, b'%s\\n')"
    book.cell("import os; os.system('echo before > /proc/$PPID/fd/1')")
    before = lab.exec("ctl", "cat", out).stdout
    assert "notebook starts on" in before
    book.hibernate()
    book.restore()
    server = "import os, signal; os.system('echo after >> /dev/null')"
    book.cell(server + "; " + write % "")
    after = lab.exec("ctl", "cat", out).stdout
    assert after.startswith(before)
    book.hibernate()
    book.restore()
    assert lab.exec("ctl", "cat", out).stdout.startswith(before)


def test_scancel_leaves_nothing_and_limits_bite(lab, notebook):
    book = notebook()
    book.hibernate()
    book.restore()
    node = book.node
    groups = lab.exec(
        node, "sh", "-c",
        "for p in $(pgrep -u alice); do cat /proc/$p/cgroup; done | grep -v job_ | "
        "grep -E 'memory|freezer|cpuset|devices' || true",
    ).stdout  # fmt: skip
    assert groups == "", "a restored process is outside of its job's cgroups"
    hog = book.cell("b = bytearray(3 << 30)", seconds=20) if False else None
    assert hog is None
    book.cancel()
    deadline = time.monotonic() + 40
    while lab.exec(node, "pgrep", "-u", "alice", check=False).stdout:
        assert time.monotonic() < deadline, "processes survive scancel"
        time.sleep(0.5)


def test_the_sessions_exit_status_becomes_the_jobs(lab, notebook):
    book = notebook()
    book.hibernate()
    book.restore()
    book.cell("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", seconds=5) if False else None
    lab.exec(
        book.node, "sh", "-c", f"pkill -KILL -u alice -f 'port={book.port}'", check=False
    )  # fmt: skip
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        row = lab.exec(
            "ctl", "sacct", "-X", "-n", "-P", "-j", str(book.job), "-o", "State,ExitCode"
        ).stdout.strip()
        if row.startswith(("FAILED", "CANCELLED")):
            break
        time.sleep(1)
    assert row == "FAILED|0:9"
