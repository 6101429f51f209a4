"""A remote IDE for real: code-server in a managed session, and a browser (Chromium) at it.

Connected is not active; what is typed into its terminal is, and what that terminal's children do.
`make ide` installs both and runs this: it takes minutes, so the usual run of the tests leaves it
out.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from reclaim_lab.places import LabPlaces, address, cache_dir

from slurm_reclaim.config.schema import Idle
from tests.cluster.conftest import Lab
from tests.cluster.notebook import put
from tests.cluster.policy import policy
from tests.cluster.sessions import Counter, only

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.skipif("RECLAIM_IDE" not in os.environ, reason="make ide"),
]

INSTALLED = cache_dir() / "code-server"
BROWSER = Path(__file__).parent / "ide/browser.py"
PLACE = "/shared/code-server"
PORT = 18180
PYTHON = "/opt/slurm-reclaim/bin/python"
FLOORS = {
    "cpu": Idle.cpu_floor,
    "io": Idle.io_floor,
    "network": Idle.network_floor,
    "terminal": 1,
}
# It gives its own child ten seconds to start, which a busy machine may need more often than once.
SERVER = f"""#!/bin/bash
until {PLACE}/node {PLACE}/node_modules/code-server/out/node/entry.js --auth none \
    --bind-addr 0.0.0.0:{PORT} --disable-telemetry --disable-update-check \
    --user-data-dir $HOME/code-server-$SLURM_JOB_ID $HOME
do sleep 1; done
"""


class Tab:
    """A browser on ctl with the server's page open."""

    def __init__(self, lab: Lab, url: str, profile: Path) -> None:
        netns = LabPlaces(lab.name).netns("ctl")
        self._browser = subprocess.Popen(
            ["ip", "netns", "exec", netns, "python3", str(BROWSER), url, str(profile)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, what: str, **more: str) -> object:
        assert self._browser.stdin
        assert self._browser.stdout
        self._browser.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._browser.stdin.flush()
        answer = json.loads(self._browser.stdout.readline() or '{"error": "the browser is gone"}')
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["said"]

    def close(self) -> None:
        assert self._browser.stdin
        if not self._browser.stdin.closed:
            self._browser.stdin.close()
            self._browser.wait(60)


class Ide:
    """A code-server of alice's on n1, with a tab at its terminal."""

    def __init__(self, lab: Lab, profile: Path) -> None:
        self.lab, self.profile = lab, profile
        put(lab, "samples.py")
        lab.exec(
            "ctl", "sh", "-c", "rm -f ~/ide-*; printf 'PS1=\"> \"\n' > ~/.bashrc", user="alice"
        )
        with only(lab, "n1"):
            words = ["--reclaim=on", "-J", "ide", "-n2", "--mem=3000M", "-D", "/shared/home/alice"]
            number = lab.sbatch(SERVER, *words, "-o", "/shared/home/alice/code-server.out")
            self.job = Counter(lab, number, "alice")
            self.job.wait_for("RUNNING")
        self.job.wait_for_session("ACTIVE")
        self.wait_for_server()
        # By its address: the browser is the machine's, with a node's network only.
        self.tab = Tab(lab, f"http://{address('n1')}:{PORT}", profile)

    def open_terminal(self) -> None:
        self.tab.do("terminal")
        self.lab.wait("the terminal's shell", self.shells, 240)
        time.sleep(2)

    def wait_for_server(self) -> None:
        probe = f"import urllib.request as u; u.urlopen('http://n1:{PORT}/healthz', timeout=3)"
        self.lab.wait(
            "code-server to answer",
            lambda: self.lab.exec("ctl", "python3", "-c", probe, check=False).returncode == 0,
            240,
        )

    def shells(self) -> str:
        """Shells of the IDE's terminals, as it starts them."""
        words = ("pgrep", "-a", "-u", "alice", "-f", "^[^ ]*bash --init-file")
        return self.lab.exec("n1", *words, check=False).stdout

    def says_again(self, command: str) -> str:
        """As says, to a page that may yet have to find its server: typed again until heard."""
        for _ in range(8):
            try:
                return self.says(command, 15)
            except AssertionError:
                continue
        raise AssertionError(f"{command!r} was typed and not heard")

    def says(self, command: str, patience: float = 60) -> str:
        """Types it; what it writes."""
        path = f"/shared/home/alice/ide-{time.time_ns()}"
        self.tab.do("type", text=f"{command} > {path}; mv {path} {path}.done")
        done = self.lab.wait(
            f"what {command!r} says",
            lambda: (
                (got := self.lab.exec("ctl", "cat", f"{path}.done", check=False)).returncode == 0
                and got
            ),
            patience,
        )
        return done.stdout.strip()  # type: ignore[attr-defined]

    def connections(self) -> int:
        """From the browser's machine to the server, as the node has them."""
        seen = self.lab.out("n1", "ss", "-Htn", "state", "established", f"( sport = :{PORT} )")
        return sum(f"{address('ctl')}:" in line for line in seen.splitlines())

    def sample(self, seconds: float) -> dict[str, dict]:
        number = str(self.job.job)
        done = self.lab.out("n1", PYTHON, "/shared/inside/samples.py", number, str(seconds))
        return json.loads(done)[-1]["readings"]

    def used(self, seconds: float = 10) -> dict[str, dict]:
        """The signals at or above their floor; none may be unknown."""
        readings = self.sample(seconds)
        known = {name: readings[name] for name in FLOORS}
        assert all(reading["value"] is not None for reading in known.values()), known
        return {n: reading for n, reading in known.items() if reading["value"] >= FLOORS[n]}

    def wait_until_quiet(self, patience: float = 240) -> None:
        """As anybody's would be after its start: extensions are loaded, files are looked at."""
        last: dict[str, dict] = {}

        def quiet() -> bool:
            nonlocal last
            last = self.used()
            return not last

        try:
            self.lab.wait("a quiet IDE", quiet, patience)
        except AssertionError as error:
            raise AssertionError(f"{error}: {last}") from None

    def close(self) -> None:
        self.tab.close()
        self.job.cancel()


@pytest.fixture(scope="module")
def place(lab: Lab) -> None:
    """code-server at the same path on every node, as a site's module tree has it."""
    target = LabPlaces(lab.name).shared / "code-server"
    if not target.exists():
        copied = subprocess.run(["cp", "-al", INSTALLED, target], stderr=subprocess.DEVNULL)
        if copied.returncode:  # on another file system
            subprocess.run(["rm", "-rf", target], check=True)
            subprocess.run(["cp", "-a", INSTALLED, target], check=True)


@pytest.fixture
def ide(lab: Lab, place: None, tmp_path: Path) -> Iterator[Ide]:
    started = Ide(lab, tmp_path / "profile")
    try:
        started.open_terminal()
        yield started
    finally:
        started.close()


def test_connected_is_not_active_and_its_terminal_is(ide: Ide) -> None:
    assert ide.says("echo here") == "here"
    ide.wait_until_quiet()
    # Three times in a row, with the page open and its connections alive.
    for _ in range(3):
        assert ide.connections() >= 1
        assert ide.used() == {}
    assert ide.connections() >= 1
    # Somebody types, while it is measured.
    with ThreadPoolExecutor(1) as pool:
        sampled = pool.submit(ide.sample, 15)
        while not sampled.done():
            ide.tab.do("type", text="true")
            typed = time.time()
            time.sleep(2)
        reading = sampled.result()["terminal"]
    assert reading["value"] == 1, reading
    assert reading["last"] == pytest.approx(typed, abs=15), reading
    assert reading["what"].startswith("input on pts/"), reading
    # A child of the terminal works, with nobody at the keyboard.
    ide.tab.do("type", text="python3 -c 'while True: sum(range(100000))' &")
    ide.lab.wait("the work to be seen", lambda: "cpu" in ide.used(3), 60)
    ide.tab.do("type", text="kill %1")
    ide.wait_until_quiet()


# One that starts others each second would be use: VS Code looks at all processes (`ps`) each time
# that those of its terminals change, which is more I/O than the floor.
PRINT = "import time; any(print(i, flush=True) or time.sleep(1) for i in range(1, 10**6))"
COUNT = f"python3 -c '{PRINT}' > ~/ide-count &"


# The policy's own, half a core, is more than a busy machine has for the child.
FLOOR = f"""
[[rule]]
name = "ide"
job_name = ["ide"]
cpu_floor = {Idle.cpu_floor}
"""


def counted(lab: Lab) -> list[int]:
    return [int(word) for word in lab.out("ctl", "cat", "/shared/home/alice/ide-count").split()]


def comes_back(ide: Ide) -> None:
    """What ran in its terminal goes on where it was: nothing twice, nothing left out."""
    before = counted(ide.lab)
    with only(ide.lab, "n1"):
        ide.job.reclaim("restore")
        ide.job.wait_for("RUNNING")
    ide.lab.wait("the terminal's child to go on", lambda: len(counted(ide.lab)) > len(before) + 1)
    assert counted(ide.lab) == list(range(1, len(counted(ide.lab)) + 1))
    ide.wait_for_server()


def test_hibernated_while_connected_and_back_with_its_terminal(ide: Ide) -> None:
    """By its owner's wish, with the page open: it finds its server again by itself, and it has the
    same terminal."""
    assert ide.says("x=42; echo $x") == "42"
    ide.tab.do("type", text=COUNT)
    shells = ide.shells()
    ide.job.reclaim("hibernate")
    assert ide.job.state == "SPECIAL_EXIT"
    assert ide.shells() == ""
    comes_back(ide)
    assert len(ide.shells().splitlines()) == len(shells.splitlines())
    assert ide.says_again("echo $x") == "42"


def test_warned_though_connected_and_hibernated_once_the_page_is_closed(ide: Ide) -> None:
    """By a policy in a hurry. The page's own messages, every few seconds, stop a hibernation in its
    last second (docs/signals.md), so that it is closed before the end."""
    ide.tab.do("type", text=COUNT)
    ide.wait_until_quiet()
    ide.tab.do("type", text="python3 -c 'while True: sum(range(100000))' &")
    with policy(ide.lab, window="15s", grace="30s", cooldown="0s", more=FLOOR):
        time.sleep(40)
        assert ide.job.session()["state"] == "ACTIVE", "its terminal's child is at work"
        ide.tab.do("type", text="kill %2")
        ide.job.wait_for_session("WARNED", 180)
        assert ide.connections() >= 1
        ide.tab.do("type", text="true")
        ide.job.wait_for_session("ACTIVE", 25)
        seen = [each for each in ide.job.events() if each["kind"] == "activity-seen"]
        assert "terminal" in seen[-1]["reason"], seen
        ide.job.wait_for_session("WARNED", 120)
        assert ide.connections() >= 1
        ide.tab.close()
        ide.job.wait_for_session("HIBERNATED", 180)
    assert ide.shells() == ""
    comes_back(ide)
