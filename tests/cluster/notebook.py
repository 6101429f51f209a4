"""Notebook sessions on the test cluster, as users have them."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

INSIDE = Path(__file__).parent / "inside"
TOKEN = "lab-token"


class Runs(Protocol):
    """What is needed of the cluster: run a command on a node as a user."""

    def exec(
        self, node: str, *command: str, user: str = "root", stdin: str = "", check: bool = True
    ) -> subprocess.CompletedProcess[str]: ...


@dataclass
class Cell:
    kernel: str
    status: str
    count: int
    text: str
    seconds: float


class Notebook:
    """One Jupyter server in a batch job."""

    def __init__(self, lab: Runs, user: str, job: int, port: int) -> None:
        self.lab, self.user, self.job, self.port = lab, user, job, port
        self.kernels: dict[int, str] = {}

    @classmethod
    def start(
        cls,
        lab: Runs,
        *options: str,
        user: str = "alice",
        wait: float = 90,
        port: int = 0,
        server: tuple[str, ...] = (),
    ) -> Notebook:
        """Submit and wait until the server answers. `server`: more options for it."""
        put(lab, "notebook.sh", "cell.py")
        port = port or 20000 + int(time.time() * 10) % 20000
        out = lab.exec(
            "ctl", "sbatch", "--parsable", *options, "/shared/inside/notebook.sh", str(port), TOKEN,
            *server, user=user,
        )  # fmt: skip
        notebook = cls(lab, user, int(out.stdout.split(";")[0]), port)
        try:
            notebook.wait_for_state("RUNNING", wait)
            notebook.wait_for_server(wait)
            notebook.wait_for_session(wait)
        except TimeoutError:
            notebook.cancel()
            raise
        return notebook

    def squeue(self, fields: str = "%T|%N|%r|%k") -> list[str]:
        done = self.lab.exec("ctl", "squeue", "-h", "-t", "all", "-j", str(self.job), "-o", fields)
        return done.stdout.strip().split("|")

    @property
    def state(self) -> str:
        return self.squeue()[0]

    @property
    def node(self) -> str:
        return self.squeue()[1]

    def wait_for_state(self, state: str, seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while (seen := self.state) != state:
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {self.job} is {seen}, not {state}, after {seconds:g} s")
            time.sleep(0.2)

    def wait_for_server(self, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        url = f"http://{self.node}:{self.port}/api/status?token={TOKEN}"
        probe = f"import urllib.request as u; u.urlopen('{url}', timeout=3)"
        while True:
            done = self.lab.exec("ctl", "python3", "-c", probe, check=False)
            if done.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"the notebook of job {self.job} does not answer: {done.stderr}")
            time.sleep(0.3)

    def wait_for_session(self, seconds: float = 60) -> None:
        """Until the controller has heard of it, where its node has one: a moment, but for a
        controller that was just restarted."""
        deadline = time.monotonic() + seconds
        node = self.node
        record = f"/var/lib/slurm-reclaim/sessions/{self.job}.json"
        if self.lab.exec(node, "test", "-e", record, check=False).returncode:
            return
        while self.reclaim("show", str(self.job), user="root", check=False).returncode:
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {self.job} runs on {node}, and reclaimd does not know it")
            time.sleep(0.3)

    def cell(
        self,
        code: str,
        *,
        nth: int = 0,
        seconds: float = 60,
        check: bool = True,
        stdin: bool = False,
    ) -> Cell:
        """Run code in the nth kernel (made if need be) and return what came of it; without
        `check` an unanswered one has the status `none`. `stdin`: input() waits."""
        which = ["--kernel", self.kernels[nth]] if nth in self.kernels else []
        done = self.lab.exec(
            "ctl", "/opt/jupyter/bin/python", "/shared/inside/cell.py", self.node, str(self.port),
            TOKEN, *which, "--seconds", str(seconds), *(["--stdin"] if stdin else []),
            user=self.user, stdin=code, check=check,
        )  # fmt: skip
        if done.returncode:
            return Cell("", "none", 0, "", 0.0)
        cell = Cell(**json.loads(done.stdout))
        self.kernels[nth] = cell.kernel
        return cell

    def reclaim(self, *words: str, user: str = "", check: bool = True):
        return self.lab.exec("ctl", "reclaim", *words, user=user or self.user, check=check)

    def hibernate(self) -> None:
        self.reclaim("hibernate", str(self.job))
        self.wait_for_state("SPECIAL_EXIT")

    def restore(self) -> None:
        self.reclaim("restore", str(self.job))
        self.wait_for_state("RUNNING")
        self.wait_for_server()

    def cancel(self) -> None:
        self.lab.exec("ctl", "scancel", str(self.job), check=False)


def put(lab: Runs, *names: str) -> None:
    """Copy test programs to /shared/inside of the cluster."""
    for name in names:
        script = (
            "mkdir -p /shared/inside && cat > /shared/inside/.$$ && "
            f"chmod 755 /shared/inside/.$$ && mv /shared/inside/.$$ /shared/inside/{name}"
        )
        lab.exec("ctl", "sh", "-c", script, stdin=(INSIDE / name).read_text())
