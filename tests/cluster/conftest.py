"""The fixture `lab`: a running test cluster for all tests of the run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from reclaim_lab.errors import LabError
from reclaim_lab.node import Node
from reclaim_lab.places import LabPlaces

from tests.cluster import slurm_faults

PROGRAM = Path(__file__).with_name("lab")
ASK = Path(__file__).parent / "inside/ask.py"


class Lab:
    """One test cluster, driven through its command line."""

    program = PROGRAM

    def __init__(self, name: str) -> None:
        self.name = name
        self._asker: subprocess.Popen[str] | None = None
        self._asking = threading.Lock()

    def call(
        self, *words: str, stdin: str | None = None, check: bool = True, timeout: float = 600
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(self.program), "--name", self.name, *words],
            input=stdin or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
        if check and done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip())[-2000:]
            raise AssertionError(f"lab {' '.join(words)} exited {done.returncode}: {said}")
        return done

    def exec(
        self,
        node: str,
        *command: str,
        user: str = "root",
        stdin: str = "",
        check: bool = True,
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node as if logged in there: what `lab exec` does, without the start
        of an interpreter for each of a test's many commands."""
        try:
            done = subprocess.run(
                self._entering(node, user, command),
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                umask=0o022,
            )
        except LabError as error:
            done = subprocess.CompletedProcess(command, 1, "", f"lab: {error}\n")
        if check and done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip())[-2000:]
            where = f"{' '.join(command)} on {node}"
            raise AssertionError(f"{where} exited {done.returncode}: {said}")
        return done

    def _entering(self, node: str, user: str, command: Sequence[str]) -> list[str]:
        return Node(LabPlaces(self.name), node).entering(command, user=user)

    def ask(self, *words: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        """`reclaim WORDS` on ctl, for questions that tests ask again and again: the program itself,
        in a child of an interpreter that has it loaded (inside/ask.py)."""
        with self._asking:
            if self._asker is None or self._asker.poll() is not None:
                self._asker = self._start_asker()
            assert self._asker.stdin
            assert self._asker.stdout
            try:
                self._asker.stdin.write(json.dumps([user, *words]) + "\n")
                self._asker.stdin.flush()
                line = self._asker.stdout.readline()
            except BrokenPipeError:
                line = ""
            if not line:  # ctl went down
                self.close()
                return subprocess.CompletedProcess(words, 1, "", "nobody there to ask\n")
        code, out, err = json.loads(line)
        return subprocess.CompletedProcess(words, code, out, err)

    def _start_asker(self) -> subprocess.Popen[str]:
        command = ["/opt/slurm-reclaim/bin/python3", "-c", ASK.read_text()]
        return subprocess.Popen(
            self._entering("ctl", "root", command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        """Nothing of this object's runs on the lab any more."""
        asker, self._asker = self._asker, None
        if asker:
            asker.kill()
            asker.communicate()

    def out(self, node: str, *command: str, user: str = "root") -> str:
        return self.exec(node, *command, user=user).stdout.strip()

    def up(self, nodes: int | None = None, gpus: int | None = None) -> None:
        words = ["up"]
        if nodes is not None:
            words += ["--nodes", str(nodes)]
        if gpus is not None:
            words += ["--gpus", str(gpus)]
        self.call(*words)

    def down(self, purge: bool = True) -> None:
        self.call("down", *(["--purge"] if purge else []))

    def kill(self, node: str) -> None:
        """Power failure."""
        self.call("kill", node)

    def boot(self, node: str) -> None:
        self.call("boot", node)

    def stop_daemon(self, node: str, daemon: str, *, kill: bool = False) -> None:
        self.call("stop-daemon", node, daemon, *(["--kill"] if kill else []))

    def start_daemon(self, node: str, daemon: str) -> None:
        self.call("start-daemon", node, daemon)

    def restart_daemon(self, node: str, daemon: str, *, kill: bool = False) -> None:
        self.call("restart-daemon", node, daemon, *(["--kill"] if kill else []))

    def logs(self, node: str, daemon: str) -> str:
        return self.call("logs", node, daemon).stdout

    def tails(self, lines: int = 25) -> list[tuple[str, str]]:
        """(what, its newest lines), for who looks at a failure: Slurm's lists, daemons' logs."""
        lists = (("squeue", "-a", "-o", "%i %T %R"), ("sinfo", "-N", "-o", "%N %T %E"))
        found = [(" ".join(it), self.exec("ctl", *it, check=False).stdout) for it in lists]
        for node in [path.stem for path in sorted(LabPlaces(self.name).run.glob("*.json"))]:
            daemons = ("reclaimd", "slurmctld") if node == "ctl" else ("reclaim-agent", "slurmd")
            for daemon in daemons:
                done = self.exec(
                    node, "tail", "-n", str(lines), f"/var/log/{daemon}.log", check=False
                )
                found.append((f"{node} {daemon}", done.stdout or done.stderr))
        return found

    def jobs_left(self, patience: float) -> str:
        """What Slurm's queue still holds after so many seconds; empty as soon as it is."""
        deadline = time.monotonic() + patience
        while jobs := self.out("ctl", "squeue", "-h", "-a", "-o", "%i %j %T"):
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)
        return jobs

    def is_up(self) -> bool:
        """All nodes up and every installed daemon running."""
        return self.call("status", check=False).returncode == 0

    def sbatch(self, script: str, *options: str, user: str = "alice", node: str = "ctl") -> int:
        """Submit the text of a batch script, give back its job id."""
        said = self.exec(node, "sbatch", "--parsable", *options, user=user, stdin=script).stdout
        return int(said.split(";")[0])

    def job_state(self, job: int) -> str:
        """The state of the job's newest run by accounting, e.g. COMPLETED."""
        said = self.out("ctl", "sacct", "-nXP", "-j", str(job), "-o", "State%40")
        return said.split()[0] if said else ""

    def wait(self, what: str, seen: Callable[[], object], patience: float = 30.0) -> object:
        """Poll until `seen` gives something true; that is returned. Where Slurm itself kept the lab
        waiting (slurm_faults), once more."""
        for last in (False, True):
            deadline = time.monotonic() + patience
            while time.monotonic() < deadline:
                if found := seen():
                    return found
                time.sleep(0.2)
            if last or not slurm_faults.waited_out(self):
                break
            warnings.warn(f"{self.name} lost a step while waiting for {what}", stacklevel=2)
        raise AssertionError(f"not seen within {patience:g} s: {what}")


def lab_name(more: str = "") -> str:
    """The lab of RECLAIM_TEST_LAB (`test`). Where tests run side by side (`--numprocesses 3`),
    each worker has its own: `test0`, `test1`. `more` names another one of the same worker."""
    base = os.environ.get("RECLAIM_TEST_LAB", "test")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    room = 12 - len(worker) - len(more)  # places.LabPlaces
    return base[:room].rstrip("-") + worker + more


@contextmanager
def running(name: str, **size: int) -> Iterator[Lab]:
    """Used as it is when up, else brought up and down."""
    if os.geteuid() != 0:
        pytest.skip("the test cluster needs root")
    cluster = Lab(name)
    found_up = cluster.is_up()
    try:
        cluster.up(**size)  # also where it is up: this checkout is what gets tested
        yield cluster
    finally:
        cluster.close()
        if not found_up:
            cluster.down()


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    with running(lab_name()) as cluster:
        yield cluster


CARDS = 2  # of each node of a lab with GPUs


@pytest.fixture(scope="module")
def gpu_lab() -> Iterator[Lab]:
    """With simulated GPUs (tests/gpu)."""
    with running(lab_name("-cuda"), nodes=2, gpus=CARDS) as cluster:
        yield cluster


# Files that take minutes, the longest first: of the labs side by side none is to be left with such
# a one when the other has nothing more to do.
LONGEST = (
    "test_gpu_session", "test_failures", "test_jupyter", "test_idle", "spank/test_signals",
    "test_main_job", "test_restored", "test_retention", "test_gpu_idle", "test_fit", "test_remote",
    "test_remote_retention", "spank/test_start", "test_idle_restart",
    "test_forgery", "test_crash", "test_hibernate", "test_field_cases",
    "test_slurm_settings", "test_nodes_differ", "spank/test_missing", "test_notices",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {PROGRAM.parent / f"{name}.py": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))  # stable


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    """What failed tells the newest lines of the daemons' logs of the labs it used."""
    report = yield
    if report.failed:
        for used in vars(item).get("funcargs", {}).values():
            if isinstance(used, Lab):
                report.sections += [(f"{used.name}: {of}", text) for of, text in used.tails()]
    return report


@pytest.fixture
def another_lab() -> Iterator[Callable[[str], Lab]]:
    """Makes labs of other names, gone with all they had when the test ends."""
    made: list[Lab] = []

    def make(name: str) -> Lab:
        made.append(Lab(name))
        return made[-1]

    yield make
    for each in made:
        each.down()


# FirstJobId only goes up (test_other_lives), and a lab that has been given a node keeps it.
CONFIGURED = (
    "find /etc/slurm/*.conf /etc/slurm-reclaim /usr/local/sbin -type f ! -name '*.keys' "
    '-exec sh -c \'echo "$1" $(grep -aEv "^(FirstJobId|NodeName)" "$1" | md5sum)\' - {} \\; | sort'
)


def configured(lab: Lab) -> dict[str, list[str]]:
    """What each node is configured by: names and digests."""
    nodes = sorted(path.stem for path in LabPlaces(lab.name).run.glob("*.json"))
    return {node: lab.out(node, "sh", "-c", CONFIGURED).splitlines() for node in nodes}


@pytest.fixture(scope="session")
def at_first() -> dict[str, dict[str, list[str]]]:
    """By lab: what `configured` said when it was first used."""
    return {}


@pytest.fixture(scope="module", autouse=True)
def as_found(request: pytest.FixtureRequest, at_first: dict[str, Any]) -> Iterator[None]:
    """A file of tests leaves a lab as it was, with its configuration, no job and all its nodes:
    what one leaves behind would be found by whatever runs next, and be looked for there."""
    names = {name for item in request.session.items for name in item.fixturenames
             if getattr(item, "module", None) is request.module}  # fmt: skip
    labs: list[Lab] = [request.getfixturevalue(n) for n in ("lab", "gpu_lab") if n in names]
    for lab in labs:
        if lab.name not in at_first:
            at_first[lab.name] = configured(lab)
    yield
    for lab in labs:
        now, first = configured(lab), at_first[lab.name]
        differs = {node: sorted({*now[node]} ^ {*first[node]}) for node in now if node in first}
        left = {node: files for node, files in differs.items() if files}
        assert not left, f"{lab.name} is configured otherwise than at first"
        jobs = lab.jobs_left(patience=90)
        assert not jobs, f"{lab.name} has jobs that nobody ended"
        away = lab.out("ctl", "sinfo", "-h", "-R", "-o", "%n %T %E")
        assert not away, f"{lab.name} has nodes out of service"


@pytest.fixture(autouse=True)
def undrained(request: pytest.FixtureRequest) -> Iterator[None]:
    """A node that Slurm drained in a test is there again for those that follow. Whoever promises
    that none is drained looks for it before the test ends."""
    yield
    for used in vars(request.node).get("funcargs", {}).values():
        if isinstance(used, Lab):
            for node, reason in slurm_faults.drained(used):
                said = f"{request.node.name}: {used.name} drained {node}: {reason}"
                warnings.warn(said, stacklevel=1)
                slurm_faults.resume(used, node)


@pytest.fixture
def counter(lab: Lab) -> Iterator[Callable[..., object]]:
    """Start small sessions (sessions.Counter); they are cancelled at the end of the test."""
    from tests.cluster.sessions import Counter  # which needs Lab

    started: list[Counter] = []

    def start(*options: str, **more: object) -> Counter:
        started.append(Counter.start(lab, *options, **more))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for one in started:
        one.cancel()


@pytest.fixture
def opener(lab: Lab) -> Iterator[Callable[..., object]]:
    """Start sessions with things open (inside/opener.py)."""
    from tests.cluster.notebook import put
    from tests.cluster.sessions import Counter  # which needs Lab

    put(lab, "opener.py")
    started: list[Counter] = []

    def start(
        *things: str,
        options: tuple[str, ...] = (),
        user: str = "alice",
        program: str = "python3",
    ) -> Counter:
        words = " ".join(shlex.quote(thing) for thing in things)
        script = (
            f"#!/bin/bash\n{program} /shared/inside/opener.py $HOME/count-$SLURM_JOB_ID {words}\n"
        )
        place = ["--output", "%j.out", "-D", f"/shared/home/{user}"]
        job = lab.sbatch(script, "--reclaim=on", *place, *options, user=user)
        counter = Counter(lab, job, user)
        started.append(counter)
        counter.wait_for("RUNNING")
        lab.wait("the first count", lambda: counter.seen(check=False))
        counter.wait_for_session("ACTIVE")
        return counter

    yield start
    for one in started:
        one.cancel()
