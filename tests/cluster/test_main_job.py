"""The main job on a real cluster: a notebook moves between nodes, again and again, whole."""

from __future__ import annotations

import json
import time

import pytest

from tests.cluster.notebook import TOKEN, Notebook, put
from tests.cluster.sessions import only, outside_of_job, processes

pytestmark = pytest.mark.cluster
CYCLES = 5
ECHO = 7007
ASLEEP = 4.0  # seconds, more than looking at a clock of the session's takes
# what may differ between two looks
MOVING = ("looks", "monotonic", "outside", "node")


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


def open_tab(book: Notebook) -> str:
    """A browser tab's websocket, held open on ctl; the file that tells its state."""
    put(book.lab, "hold.py")
    path = f"/shared/home/{book.user}/tab-{book.job}"
    words = f"{book.node} {book.port} {TOKEN} {book.kernels[0]} {path}"
    book.lab.exec(
        "ctl", "sh", "-c",
        f"/opt/jupyter/bin/python /shared/inside/hold.py {words} >/dev/null 2>&1 </dev/null &",
        user=book.user,
    )  # fmt: skip
    wait_for_tab(book, path, "open")
    return path


def wait_for_tab(book: Notebook, path: str, word: str) -> None:
    def seen() -> bool:
        return book.lab.exec("ctl", "cat", path, check=False).stdout == word

    book.lab.wait(f"the tab to be {word}", seen)


def look(book: Notebook) -> dict:
    return json.loads(book.cell("zoo.show()").text)


def start_zoo(lab, notebook) -> tuple[Notebook, str]:
    put(lab, "zoo.py", "echo.py")
    lab.exec(
        "ctl", "sh", "-c",
        f"timeout 600 python3 /shared/inside/echo.py {ECHO} >/dev/null 2>&1 </dev/null &",
    )  # fmt: skip
    book = notebook()
    book.cell(
        "import sys; sys.path.insert(0, '/shared/inside'); import zoo\n"
        f"zoo.make('/shared/home/alice', 'ctl', {ECHO}); counter = 0"
    )
    book.cell("other = 'second kernel'", nth=1)
    terminal = typed(book, "x=42", "sleep 9999 &", "cat", "^Z")["name"]
    return book, terminal


def test_five_cycles_across_three_nodes(lab, notebook):
    lab.up(nodes=3)
    with only(lab, "n1"):
        book, terminal = start_zoo(lab, notebook)
    tab = open_tab(book)
    first = look(book)
    assert first["outside"] == "open"
    assert first["io_uring"] == 38, "io_uring_setup must answer ENOSYS in a managed session"
    monotonic, began = first["monotonic"], time.monotonic()
    for cycle, node in enumerate(["n2", "n3", "n1", "n3", "n2"], 1):
        left = book.node
        book.hibernate()
        assert lab.out("ctl", "squeue", "-h", "-w", left, "-j", str(book.job)) == ""
        if cycle == 1:
            time.sleep(ASLEEP)
            began += ASLEEP  # the nodes share a clock, which goes on; the session's does not
        with only(lab, node):
            book.restore()
        assert book.node == node
        assert book.cell("counter += 1; print(counter)").text.strip() == str(cycle)
        assert book.cell("print(other)", nth=1).text.strip() == "second kernel"
        seen = look(book)
        kept = {k: v for k, v in first.items() if k not in MOVING}
        assert {k: seen[k] for k in kept} == kept
        assert seen["looks"] == cycle + 1
        assert seen["outside"].startswith("closed")
        assert monotonic < seen["monotonic"] < monotonic + (time.monotonic() - began) + 1
        monotonic, began = seen["monotonic"], time.monotonic()
        shown = typed(book, "echo v=$x; jobs", name=terminal)["text"]
        assert "v=42" in shown
        assert "Running" in shown
        assert "Stopped" in shown
        assert lab.out(node, "pgrep", "-u", "alice", "-x", "-r", "T", "cat")
        if cycle == 1:
            wait_for_tab(book, tab, "closed")
    starts = lab.out("ctl", "cat", "/shared/home/alice/starts").split()
    assert starts.count(str(book.job)) == 1, "the batch script ran exactly once"
    assert outside_of_job(lab, book.node) == {}


def test_a_restored_notebook_ends_as_it_would_have(lab, notebook):
    book = notebook()
    book.hibernate()
    book.restore()
    node = book.node
    # the server is the tree's root; it dies of a signal, and so does the job
    book.cell("import os; os.kill(os.getppid(), 9)", seconds=5, check=False)

    def ended() -> str:
        row = lab.out("ctl", "sacct", "-nXP", "-j", str(book.job), "-o", "State,ExitCode")
        return row if row.startswith(("FAILED", "CANCELLED", "COMPLETED")) else ""

    assert lab.wait("the job to end", ended, 40) == "FAILED|0:9"
    lab.wait("no process left", lambda: not processes(lab, node))


def test_the_memory_limit_bites_after_a_restore(lab, notebook):
    book = notebook()
    book.hibernate()
    book.restore()
    hog = book.cell("b = bytearray(b'x') * (3 << 30)", seconds=20, check=False)
    assert hog.status == "none", "it got the memory, or was refused it by something else"
    done = book.cell("print('alive')", nth=1, seconds=20, check=False)
    assert "alive" not in done.text or kernel_restarted(book)


def kernel_restarted(book: Notebook) -> bool:
    """The hog's kernel was killed by the job's limit and started anew by its server."""
    return "NameError" in book.cell("print(b)", seconds=20).text
