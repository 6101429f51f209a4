"""One session that counts (inside/ticker.py), and what must be true of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.crash.rig import PLACE, Rig

USER = "alice"
RESTING = ("ACTIVE", "HIBERNATED", "FAILED", "ENDED", "")


class Violation(AssertionError):
    """A promise was not kept; the text begins with its number."""


@dataclass
class Ticker:
    rig: Rig
    node: str
    job: int = 0
    pid: int = 0
    floor: int = 0
    """Ticks may go back to here: while the checkpoint is the truth, and after a power failure."""
    saved: int = 0
    """The last tick of the last checkpoint."""
    repeated: int = 0
    """Ticks that were done twice: by a restore that did not come to its end, and the next."""
    _read: int = 0
    _last: int = 0
    _starts: int = field(default=0)

    def start(self) -> None:
        ticker = "gpu_ticker.py" if self.rig.gpu else "ticker.py"
        script = f"#!/bin/sh\npython3 {PLACE}/{ticker} $HOME/ticks-$SLURM_JOB_ID\n"
        (self.rig.place / f"job-{self.node}.sh").write_text(script)
        said = self.rig.sh(
            "ctl",
            f"sbatch --parsable --reclaim=on --mem=300 -p of-{self.node} -D /shared/home/{USER}"
            f" -o %j.out {'--gres=gpu:1' if self.rig.gpu else ''} {PLACE}/job-{self.node}.sh",
            user=USER,
        )
        self.job, self.pid = int(said.split(";")[0]), 0
        self._read = self._last = self._starts = self.floor = 0
        self.saved = 0
        self.until("it counts", lambda: self.ticks() > 0)
        self.until("it is ACTIVE", lambda: self.state() == "ACTIVE")

    def end(self) -> None:
        if self.job:
            self.rig.sh("ctl", f"scancel {self.job}", check=False)
        self.job = 0

    # -- looking ------------------------------------------------------------------------------

    def ticks(self) -> int:
        """The last count. Raises Violation where the lines tell of another life."""
        path = self.rig.shared / f"home/{USER}/ticks-{self.job}"
        try:
            with path.open("rb") as file:
                file.seek(self._read)
                raw = file.read()
        except FileNotFoundError:
            return 0
        lines = raw[: raw.rfind(b"\n") + 1]
        self._read += len(lines)
        for line in lines.decode().splitlines():
            self._take(line)
        return self._last

    def _take(self, line: str) -> None:
        if line == "start":
            self._starts += 1
            if self._starts > 1:
                raise Violation(f"S10: began anew after {self._last} ticks")
            return
        count, pid, node, whole = line.split()
        if whole != "True":
            raise Violation(f"S1: its memory is not what it was at tick {count}")
        if self.pid and int(pid) != self.pid:
            raise Violation(f"S3: tick {count} by process {pid}, which was {self.pid}")
        self.pid = int(pid)
        if int(count) != self._last + 1:
            if not 0 < self.floor < int(count) <= self._last:
                raise Violation(f"S3: tick {count} on {node} after tick {self._last}")
            self.repeated += self._last - int(count) + 1
        self._last = int(count)

    def shown(self) -> dict:
        return dict(self.rig.ask(f"GET /v1/sessions/{self.job}"))

    def state(self) -> str:
        """As the controller has it; "?" where it does not answer."""
        said = self.shown()
        return "?" if "error" in said else str(said["state"])

    def slurm(self) -> str:
        return self.rig.sh("ctl", f"squeue -h -t all -j {self.job} -o '%T %k'", check=False)

    def processes(self) -> list[str]:
        """Of this job, on all nodes that are up."""
        found = []
        for name in self.rig.nodes:
            if self.rig.node(name).init():
                said = self.rig.sh(name, f"pgrep -af ticks-{self.job}$", check=False)
                found += [f"{name}: {line}" for line in said.splitlines() if "python3" in line]
        return found

    def until(self, what: str, seen: Callable[[], object], patience: float = 60.0) -> None:
        deadline = time.monotonic() + patience
        while not seen():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not seen within {patience:g} s: {what}")
            time.sleep(0.1)

    def gone(self, patience: float = 60.0) -> None:
        """Slurm has ended the job for good, COMPLETING is over."""
        done = ("CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "")
        self.until("the end", lambda: self.slurm().split(" ")[0] in done, patience)
        if left := self.processes():
            raise Violation(f"S3: ended, and there is {left}")

    def _on_cards(self) -> int:
        """Bytes that processes have there on its node; 0 where there are no cards."""
        if not self.rig.gpu or not self.rig.node(self.node).init():
            return 0
        line = f"/opt/slurm-reclaim/bin/python3 -I {PLACE}/gpu_now.py $(id -u {USER})"
        now = json.loads(self.rig.sh(self.node, line))
        if locked := {pid: state for pid, state in now["states"].items() if state != "running"}:
            raise Violation(f"S2: GPU state {locked}")
        return sum(now["held"].values())

    # -- acting -------------------------------------------------------------------------------

    def request(self, verb: str) -> str:
        """ "" or why it was not taken."""
        said = self.rig.ask(f"POST /v1/sessions/{self.job}/{verb} {{}}")
        return str(said.get("error", ""))

    def command(self, verb: str) -> str:
        """The same by the command line, which may be killed on the way."""
        loaded = f"LD_PRELOAD={PLACE}/faults.so FAULTS={PLACE}/reclaim-ctl"
        self.rig.sh("ctl", f"{loaded} reclaim {verb} {self.job} --no-wait", check=False)
        return "it was not waited for"

    def settled(self, patience: float = 90.0) -> str:
        """The state in which it comes to rest. Raises Violation where it does not."""
        seen = ""

        def rests() -> bool:
            nonlocal seen
            seen = self.state()
            return seen in RESTING

        try:
            self.until("rest", rests, patience)
        except TimeoutError:
            shown = self.shown()
            raise Violation(
                f"S7: stands in {seen} ({shown.get('reason', shown)}); Slurm: {self.slurm()}"
            ) from None
        return seen

    def goes_on(self, patience: float = 75.0) -> bool:
        """Whether it counts; False where it is not ACTIVE any more. On a node that was booted anew
        it is missed by its agent, sooner than by Slurm."""
        before = self.ticks()
        deadline = time.monotonic() + patience
        while self.ticks() < before + 2:
            if self.state() in ("HIBERNATED", "ENDED"):
                return False
            if time.monotonic() > deadline:
                raise Violation(f"S2: {self.state()} but it does not run; Slurm: {self.slurm()}")
            time.sleep(0.1)
        return True

    def check_held(self) -> None:
        """HIBERNATED: held, and nothing of it runs."""
        if left := self.processes():
            raise Violation(f"S3: HIBERNATED, and there is {left}")
        if held := self._on_cards():
            raise Violation(f"S1: HIBERNATED, and on its node's cards are {held} bytes")
        if not self.floor:  # else it is still the same checkpoint
            self.saved = self.floor = self.ticks()

    def agreed(self, state: str, patience: float = 40.0) -> str:
        """The state at which controller and Slurm mean the same. A job that waits and is not held
        was released by somebody, and is restored when it starts. One whose nodes have failed too
        often (max_batch_requeue) is held by Slurm itself."""
        held = ("SPECIAL_EXIT", "PENDING", "REQUEUE_HOLD")
        wanted = {"ACTIVE": ("RUNNING",), "HIBERNATED": held}
        deadline = time.monotonic() + patience
        while True:
            said = self.slurm()
            if state not in wanted or said.split(" ")[0] in wanted[state]:
                return state
            if time.monotonic() > deadline:
                raise Violation(f"S7: {state}, but Slurm says {said}")
            time.sleep(0.3)
            state = self.settled()

    def check_running(self) -> None:
        if len(alive := self.processes()) != 1:
            raise Violation(f"S3: {len(alive)} of it run: {alive}")
        if self.rig.gpu and not self._on_cards():
            raise Violation("S2: it runs, and has nothing on its card")
        self.floor = 0  # from here on what it does is its own again
