"""Sessions with simulated CUDA state on the test cluster, and what one wants to know of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reclaim_lab import gpus

from tests.cluster.conftest import CARDS, Lab
from tests.cluster.notebook import put
from tests.cluster.sessions import Counter

PYTHON = "/opt/slurm-reclaim/bin/python3"
NOW = Path(__file__).with_name("inside") / "gpu_now.py"
MIB = 1 << 20


# Lines of a card that has fallen off the bus.
LOST = "lost\nerror * GPU_IS_LOST"


def script(lab: Lab, node: str, *lines: str, card: str = "", more: str = "") -> None:
    """What the node's simulated libraries go by from now on: these lines besides an idle node's,
    and `more` of the card with that UUID."""
    text = gpus.idle(node, CARDS).replace("card\n", "".join(f"{x}\n" for x in lines) + "card\n", 1)
    if card:
        text = text.replace(f"uuid {card}\n", f"uuid {card}\n{more}\n")
    _put(lab, node, text)


def changed(lab: Lab, node: str, *changes: tuple[str, str]) -> None:
    """An idle node's, each text replaced by another one, of every card."""
    text = gpus.idle(node, CARDS)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    _put(lab, node, text)


def back(lab: Lab, node: str) -> None:
    """Idle as ever, and NVML begun anew: for it a card that was lost once stays lost."""
    script(lab, node)
    lab.restart_daemon(node, "reclaim-agent")


def _put(lab: Lab, node: str, text: str) -> None:
    where = gpus.SCRIPT
    lab.exec(node, "sh", "-c", f"cat >{where}.new; mv {where}.new {where}", stdin=text)


_TOTAL = 80 * gpus.GIB
FULL = (f"vram {_TOTAL} {gpus.GIB}", f"vram {_TOTAL} {_TOTAL - MIB}")
SPLIT = ("mig 0", f"mig 1\ninstance MIG-1 {_TOTAL // 8} 0 1 Simulated MIG 1g.10gb")
OTHER_DRIVER = ("driver 580.65.06", "driver 590.44.01")
OTHER_MODEL = ("name Simulated GPU", "name Another GPU")


@dataclass
class Round:
    """A line of the client; `said` is ok where the device memory is what it was."""

    count: int
    pid: int
    node: str
    uuid: str
    said: str


class GpuSession(Counter):
    """A batch job whose device memory is read back again and again."""

    @classmethod
    def begin(cls, lab: Lab, *options: str, mib: int = 16, client: str = "", gpu: str = "1"):
        """`client`: another command than cuda-session, which is given options by `client`, too,
        where it begins with `--`."""
        if not client or client.startswith("--"):
            client = f"cuda-session --interval 0.2 --mib {mib} --out $OUT {client}"
        put(lab, "gpu_pieces.py")
        text = f"#!/bin/bash\necho started\nexport OUT=$HOME/cuda-$SLURM_JOB_ID\n{client}\n"
        words = ["--reclaim=on", "--output", "%j.out", "-D", "/shared/home/alice"]
        job = lab.sbatch(text, *words, f"--gres=gpu:{gpu}", *options)
        session = cls(lab, job, "alice")
        session.path = f"/shared/home/alice/cuda-{job}"
        session.wait_for("RUNNING")
        lab.wait("the first round", session.rounds)
        session.wait_for_session("ACTIVE")
        return session

    def rounds(self) -> list[Round]:
        text = self.lab.exec("ctl", "cat", self.path, check=False).stdout
        words = [line.split() for line in text.splitlines() if len(line.split()) == 5]
        return [Round(int(w[0]), int(w[1]), w[2], w[3], w[4]) for w in words]

    def computes(self) -> Round:
        """Every process of it goes on, with the memory that it had; the last round."""
        before = self.rounds()
        pids = {each.pid for each in before}

        def fresh() -> list[Round]:
            # Of each the first may have begun before.
            new = self.rounds()[len(before) + len(pids) :]
            return new if {each.pid for each in new} == pids else []

        found: list[Round] = self.lab.wait("it to compute", fresh, 40)  # type: ignore[assignment]
        assert {each.said for each in found} == {"ok"}, found
        return found[-1]

    def now(self, node: str = "") -> dict:
        """`held` bytes by card of the node, `states` by inner PID."""
        uid = self.lab.out("ctl", "id", "-u", self.user)
        where = node or self.node
        done = self.lab.exec(where, PYTHON, "-I", "-c", NOW.read_text(), uid)
        return json.loads(done.stdout)

    def states(self) -> dict[int, str]:
        """By inner PID."""
        return {int(pid): state for pid, state in self.now()["states"].items()}

    def locked(self) -> bool:
        return any(state != "running" for state in self.now()["states"].values())

    def runs_on(self, before: Round) -> None:
        """The same processes in the same place with their GPU, and Slurm never noticed."""
        after = self.computes()
        assert (after.pid, after.node, after.uuid) == (before.pid, before.node, before.uuid)
        assert set(self.now()["states"].values()) == {"running"}
        assert self.state == "RUNNING"
        assert self.output().count("started") == 1
        letters = self.lab.out(before.node, "ps", "-o", "stat=", "-u", self.user).split()
        assert not any(letter.startswith("T") for letter in letters)

    def event(self, kind: str) -> dict:
        """The newest of that kind."""
        return next(e for e in reversed(self.events()) if e["kind"] == kind)


Begin = Callable[..., GpuSession]
