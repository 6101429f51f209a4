"""A session without Slurm: processes of another user in a PID namespace of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from slurm_reclaim.adapters.jupyter.meter import JupyterMeter
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.census import Census, Processes
from slurm_reclaim.adapters.proc.meters import IoMeter
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living
from slurm_reclaim.model.sample import Reading

UID = 65533
# One that every user can run: the tests' own may lie in root's home.
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
ODD_SERVER = Path(__file__).with_name("odd_server.py")


class Session:
    """`folder`: the owner's home."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        os.chown(self.home, UID, UID)
        folder.chmod(0o711)
        self.program = folder / "jupyter-server"
        shutil.copy(ODD_SERVER, self.program)
        self.runtime = self.home / ".local/share/jupyter/runtime"
        self.log = folder / "log"
        self._first = subprocess.Popen(
            [
                "unshare",
                "--pid",
                "--mount-proc",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                "sleep 999 & wait",
            ]
        )
        self.init = self._child(self._first.pid)
        # whose list is made anew at every look: the tests do not wait for half a minute
        self.census = Census(self.init, 0, UID, Processes(), old=0.0)
        self.io = IoMeter(self.census)
        self.meter = JupyterMeter(self.record(), self.census)
        self._started: list[subprocess.Popen[bytes]] = []

    def _child(self, parent: int) -> int:
        path = Path(f"/proc/{parent}/task/{parent}/children")
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            words = path.read_text().split()
            if words and Path(f"/proc/{words[0]}/comm").read_text() == "sh\n":
                return int(words[0])
            time.sleep(0.02)
        raise AssertionError("no session")

    def record(self) -> NodeSession:
        return NodeSession(
            job_id=1, uid=UID, gid=UID, restarts=0, mode="on", living=Living.RUNNING, init=self.init
        )

    def run(self, *words: str, env: dict[str, str] | None = None, netns: bool = False) -> None:
        """Start a process of the owner in the session."""
        enter = ["nsenter", "-t", str(self.init), "-p", "-m", "--"]
        enter += ["unshare", "--net", "--"] if netns else []
        if netns:
            enter += ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        drop = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--"]
        with self.log.open("ab") as out:
            self._started.append(
                subprocess.Popen(
                    [*enter, *drop, *words],
                    stdout=out,
                    stdin=subprocess.DEVNULL,
                    env={"HOME": str(self.home), "PATH": os.environ["PATH"], **(env or {})},
                )
            )

    def serve(
        self, behaviour: str, *words: str, env: dict[str, str] | None = None, netns: bool = False
    ) -> tuple[int, int]:
        """Start an odd server; its port and its PID in the session."""
        before = self.said("listening")
        self.run(PYTHON, str(self.program), behaviour, *words, env=env, netns=netns)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            new = self.said("listening")[len(before) :]
            if new:
                _, port, pid = new[0].split()
                return int(port), int(pid)
            time.sleep(0.05)
        raise AssertionError("the server did not start")

    def outer(self, inner: int) -> int:
        """The agent's number of one of the session's processes."""
        space = tree.namespace(self.init, "pid")
        for name in os.listdir("/proc"):
            if name.isdigit() and tree.namespace(int(name), "pid") == space:
                found = tree.read(int(name))
                if found is not None and found.inner == inner:
                    return found.pid
        raise AssertionError(f"no process {inner}")

    def said(self, word: str) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.startswith(word)]

    def read(self) -> Reading | None:
        self.io.read(10.0)  # as the agent does, which tells who may have become another program
        return self.meter.read(10.0).get("jupyter")

    def close(self) -> None:
        self._first.kill()
        self._first.wait()
        for one in self._started:
            one.wait()
