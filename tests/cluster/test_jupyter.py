"""The signal `jupyter` on real Jupyter servers in managed jobs: what counts as use, and that asking
changes nothing (field cases C21, C22, C28, C33, C37, C38)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.notebook import TOKEN, Notebook, put
from tests.cluster.sessions import Counter

PYTHON = "/opt/slurm-reclaim/bin/python3"
JUPYTER = "/opt/jupyter/bin"
CYCLES = int(os.environ.get("RECLAIM_TEST_CYCLES", "3"))


class Readings:
    """What the meter of the job's session says, on its node."""

    def __init__(self, lab, job: Counter | Notebook) -> None:
        self.lab, self.job = lab, job
        self.node = job.node
        put(lab, "meter.py", "open_tab.py")

    def poll(self, reads: int, pause: int) -> list[dict]:
        words = [str(self.job.job), str(reads), str(pause)]
        said = self.lab.out(self.node, PYTHON, "/shared/inside/meter.py", *words)
        return [json.loads(line) for line in said.splitlines()]

    def now(self) -> dict:
        return self.poll(1, 0)[0]

    def wait(self, what: str, seen: Callable[[dict], object], patience: float = 30) -> dict:
        last: dict = {}

        def look() -> bool:
            nonlocal last
            last = self.now()
            return bool(seen(last))

        try:
            self.lab.wait(what, look, patience)
        except AssertionError as error:
            raise AssertionError(f"{error}: {last}") from None
        return last


def wait_for_session(lab, job: int) -> None:
    def state() -> str:
        done = lab.ask("show", str(job), "--json")
        return json.loads(done.stdout or "{}").get("state", "")

    lab.wait(f"session {job}", lambda: state() == "ACTIVE", 60)


@pytest.fixture
def notebook(lab) -> Iterator[Callable[..., Notebook]]:
    started: list[Notebook] = []

    def start(*server: str, **more) -> Notebook:
        started.append(Notebook.start(lab, "--reclaim=on", server=server, **more))
        wait_for_session(lab, started[-1].job)
        return started[-1]

    yield start
    for one in started:
        one.cancel()


@pytest.fixture
def batch(lab) -> Iterator[Callable[[str], Counter]]:
    """A managed job of the given text."""
    started: list[Counter] = []

    def start(text: str) -> Counter:
        words = ["--reclaim=on", "-D", "/shared/home/alice", "-o", "%j.out", "--mem=1500M"]
        job = lab.sbatch(f"#!/bin/bash\n{text}\n", *words, user="alice")
        started.append(Counter(lab, job, "alice"))
        started[-1].wait_for("RUNNING")
        started[-1].wait_for_session("ACTIVE")
        return started[-1]

    yield start
    for one in started:
        one.cancel()


def activity(nb: Notebook) -> dict:
    """What the server itself has recorded, asked without being recorded."""
    program = (
        "import json,urllib.request as u\n"
        "def get(path):\n"
        f"  r=u.Request('http://{nb.node}:{nb.port}/api/'+path+'?no_track_activity=1')\n"
        f"  r.add_header('Authorization','token {TOKEN}')\n"
        "  return json.load(u.urlopen(r, timeout=10))\n"
        "print(json.dumps([get('status')['last_activity'], "
        "sorted((k['id'], k['last_activity'], k['execution_state']) for k in get('kernels'))]))"
    )
    return json.loads(nb.lab.out(nb.node, "python3", "-c", program))


def test_a_silent_cell_is_use_until_it_ends(lab, notebook):
    """C21 (a, b), C28: no output, nobody connected; the clock starts when it has ended."""
    nb = notebook()
    nb.cell("import time")
    readings = Readings(lab, nb)
    before = readings.now()
    assert before["value"] == 0.0
    nb.cell("time.sleep(12); ended = time.time()", seconds=2, check=False)
    busy = readings.now()
    assert busy["value"] == 1.0
    assert busy["what"] == f"kernel {nb.kernels[0][:6]} busy"
    after = readings.wait("the cell to end", lambda r: r["value"] == 0.0)
    ended = float(nb.cell("print(ended)").text)
    assert after["last"] == pytest.approx(ended, abs=1.0)
    assert after["what"] == f"1 kernel idle, kernel {nb.kernels[0][:6]} used last"


def test_a_cell_that_waits_for_input_is_busy(lab, notebook):
    """C21 (c): nothing tells it from a cell at work, so it counts as one."""
    nb = notebook()
    nb.cell("1")
    nb.cell("x = input('name? ')", seconds=3, check=False, stdin=True)
    assert [r["value"] for r in Readings(lab, nb).poll(3, 1)] == [1.0] * 3


def test_a_thread_in_an_idle_kernel_is_not_a_busy_kernel(lab, notebook):
    """C22: its work is seen by CPU; what it prints is, to the server, the cell's own output."""
    nb = notebook()
    loop = "import threading\ndef work():\n  while True: sum(range(10000)); time.sleep(0.01)\n"
    nb.cell(f"import time\n{loop}threading.Thread(target=work, daemon=True).start()")
    readings = Readings(lab, nb).poll(3, 1)
    assert [r["value"] for r in readings] == [0.0] * 3
    assert len({r["last"] for r in readings}) == 1


def test_an_open_tab_is_not_use(lab, notebook):
    """C37: connecting, reloading, kernel_info, comm_info, debugger, polling of the REST API."""
    nb = notebook()
    nb.cell("1")
    readings = Readings(lab, nb)
    before = readings.now()
    rounds = lab.out(
        "ctl", f"{JUPYTER}/python", "/shared/inside/open_tab.py", nb.node, str(nb.port), TOKEN,
        nb.kernels[0], "6", user="alice",
    )  # fmt: skip
    assert int(rounds) > 3
    after = readings.now()
    assert (after["value"], after["last"]) == (0.0, before["last"])
    nb.cell("2")
    assert readings.now()["last"] > before["last"]


def test_a_start_and_a_restart_of_a_kernel_are_use(lab, notebook):
    nb = notebook()
    readings = Readings(lab, nb)
    assert readings.now() | {"took": 0, "cpu": 0} == {
        "value": 0.0, "last": 0.0, "what": "no kernel", "took": 0, "cpu": 0,
    }  # fmt: skip
    nb.cell("1")
    first = readings.now()["last"]
    assert first > 0
    post = (
        "import urllib.request as u\n"
        f"r=u.Request('http://{nb.node}:{nb.port}/api/kernels/{nb.kernels[0]}/restart',data=b'')\n"
        f"r.add_header('Authorization','token {TOKEN}'); u.urlopen(r, timeout=30)"
    )
    lab.out("ctl", "python3", "-c", post)
    readings.wait("the restart to be seen", lambda r: r["last"] > first)


def test_asking_leaves_no_trace(lab, notebook):
    """C38: neither of the server's own stamps moves."""
    nb = notebook()
    nb.cell("1")
    time.sleep(1)
    before = activity(nb)
    readings = Readings(lab, nb).poll(30, 0)
    assert [r["value"] for r in readings] == [0.0] * 30
    assert activity(nb) == before


def test_the_servers_own_culler_still_works(lab, notebook):
    """C38: it looks once a minute."""
    nb = notebook("--ServerApp.shutdown_no_activity_timeout=20")
    readings = Readings(lab, nb).poll(10, 1)
    assert readings[-1]["value"] == 0.0
    deadline = time.monotonic() + 150
    while nb.state == "RUNNING":
        assert time.monotonic() < deadline, "the server did not shut down"
        lab.exec(nb.node, PYTHON, "/shared/inside/meter.py", str(nb.job), "5", "1", check=False)


SERVERS = f"""
cd /tmp; mkdir -p tls; J={JUPYTER}/jupyter
export JUPYTER_TOKEN=secret
openssl req -x509 -newkey rsa:2048 -nodes -keyout tls/key -out tls/cert -days 2 -subj /CN=odd
$J server --no-browser --port=0 --certfile=tls/cert --keyfile=tls/key &
$J server --no-browser --sock=$HOME/j-$SLURM_JOB_ID.sock --ServerApp.base_url=/unix/ &
$J server --no-browser --ip=:: --port=0 --ServerApp.base_url=/six/x &
exec {JUPYTER}/jupyter-lab --no-browser --port=0 --ip=0.0.0.0 --LabApp.base_url=/lab/$SLURM_JOB_ID
"""


def kernel_in_each(lab, node: str, home: str) -> str:
    """Starts one kernel in every server that has an info file, as its owner."""
    return lab.out(
        node, "bash", "-c",
        f"cd {home}/.local/share/jupyter/runtime; for f in jpserver-*.json; do {JUPYTER}/python "
        "/shared/inside/start_kernel.py $f; done", user="alice",
    )  # fmt: skip


def test_every_kind_of_server_is_asked(lab, batch):
    """TLS with a certificate of its own, a Unix socket, IPv6, paths: in one session."""
    put(lab, "start_kernel.py")
    lab.exec("ctl", "sh", "-c", "rm -rf ~/.local/share/jupyter/runtime", user="alice")
    job = batch(SERVERS)
    readings = Readings(lab, job)
    readings.wait("all servers", lambda r: r.get("what") == "no kernel", 60)
    said = kernel_in_each(lab, job.node, "/shared/home/alice")
    assert said.split() == ["201"] * 4
    seen = readings.wait("four kernels", lambda r: r["what"].startswith("4 kernels idle"))
    assert time.time() - seen["last"] < 60


def test_a_server_with_a_password_is_unknown(lab, batch):
    hashed = "argon2:$argon2id$v=19$m=10240,t=10,p=8$1Fm0NNFBXFDAFZsHxz4UZA$0Y7zuwDWAJoTVVYFtX7pPg"
    job = batch(
        f"exec {JUPYTER}/jupyter-server --no-browser --port=0 "
        f"--PasswordIdentityProvider.hashed_password='{hashed}'"
    )
    readings = Readings(lab, job)
    seen = readings.wait("a refusal", lambda r: r.get("what", "").endswith(": 403"), 60)
    assert seen["value"] is None
    assert seen["what"].startswith("Jupyter server ")


def test_a_kernel_without_a_server(lab, batch):
    """C33: as VS Code starts them; named, its work is seen by CPU."""
    job = batch(f"{JUPYTER}/python -m ipykernel_launcher -f $HOME/kernel-v2-1.json & wait")
    readings = Readings(lab, job)
    seen = readings.wait("the kernel", lambda r: "without a server: python" in r.get("what", ""))
    assert (seen["value"], seen["last"]) == (0.0, 0.0)


class Asking:
    """Somebody who asks without a pause, until told to stop or after some minutes."""

    def __init__(self, lab, nb: Notebook) -> None:
        self.lab, self.node = lab, nb.node
        put(lab, "meter.py")
        loop = (
            "for i in $(seq 500); do [ -e /tmp/asked.stop ] && exit; "
            f"{PYTHON} /shared/inside/meter.py {nb.job} 10 0; sleep 0.1; done"
        )
        script = f"rm -f /tmp/asked.stop; setsid sh -c '{loop}' >/tmp/asked 2>&1 </dev/null &"
        lab.exec(self.node, "sh", "-c", script)

    def stop(self) -> list[dict]:
        """What was said, errors (the session is gone) left out."""
        self.lab.exec(self.node, "touch", "/tmp/asked.stop")
        lines = self.lab.out(self.node, "cat", "/tmp/asked").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


def test_hibernating_while_it_is_asked(lab, notebook):
    """An asked connection neither stops a dump nor counts as somebody's message, and the server can
    be asked again in its next life."""
    nb = notebook()
    nb.cell("x = 41")
    for _ in range(CYCLES):
        asking = Asking(lab, nb)
        try:
            nb.hibernate()
        finally:
            said = asking.stop()
        assert [r for r in said if r.get("value") == 0.0], said
        nb.restore()
        assert Readings(lab, nb).wait("an answer", lambda r: r.get("value") == 0.0)
    assert nb.cell("print(x + 1)").text == "42\n"
