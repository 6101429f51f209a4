"""Small managed jobs for tests, and what one wants to know of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from slurm_reclaim.adapters.slurm.nodeset import NodeSetNames
from tests.cluster.conftest import Lab
from tests.cluster.notebook import put


@dataclass
class Seen:
    count: int
    pid: int
    node: str
    memory: bool


class Counter:
    """A batch job that counts (inside/counter.py)."""

    def __init__(self, lab: Lab, job: int, user: str, task: int | None = None) -> None:
        self.lab, self.job, self.user = lab, job, user
        self.ref = str(job) if task is None else f"{job}_{task}"
        self.path = f"/shared/home/{user}/count-{self.ref}"

    @classmethod
    def start(
        cls,
        lab: Lab,
        *options: str,
        user: str = "alice",
        mib: int = 0,
        reclaim: str = "on",
        task: int | None = None,
        managed: bool = True,
    ) -> Counter:
        put(lab, "counter.py")
        name = "$SLURM_JOB_ID" if task is None else "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
        script = (
            "#!/bin/bash\necho started ${SLURM_RESTART_COUNT:-0}\n"
            f"python3 /shared/inside/counter.py $HOME/count-{name} {mib}\n"
        )
        words = [f"--reclaim={reclaim}", "--output", "%j.out", "-D", f"/shared/home/{user}"]
        job = lab.sbatch(script, *words, *options, user=user)
        counter = cls(lab, job, user, task)
        counter.wait_for("RUNNING")
        lab.wait("the first count", lambda: counter.seen(check=False))
        if reclaim == "on" and managed:
            counter.wait_for_session("ACTIVE")
        return counter

    def seen(self, check: bool = True) -> Seen | None:
        done = self.lab.exec("ctl", "cat", self.path, check=check)
        words = done.stdout.split()
        return Seen(int(words[0]), int(words[1]), words[2], words[3] == "True") if words else None

    def counts_on(self) -> Seen:
        """Wait until it has counted further; what it says then."""
        before = self.seen()
        self.lab.wait("the counter to go on", lambda: self.seen().count > before.count)
        return self.seen()

    def squeue(self, field: str) -> str:
        return self.lab.out("ctl", "squeue", "-h", "-t", "all", "-j", self.ref, "-o", field)

    @property
    def state(self) -> str:
        return self.squeue("%T")

    @property
    def excluded(self) -> tuple[str, ...]:
        """The nodes on which it may not start."""
        return NodeSetNames().expand(self.squeue("%x").replace("(null)", ""))

    @property
    def node(self) -> str:
        return self.squeue("%N")

    def wait_for(self, state: str, patience: float = 60) -> None:
        self.lab.wait(f"job {self.job} {state}", lambda: self.state == state, patience)

    def session(self) -> dict:
        """As `reclaim show --json` has it; an error object where there is none."""
        done = self.lab.ask("show", self.ref, "--json")
        return {"state": "", **json.loads(done.stdout)}

    def wait_for_session(self, state: str, patience: float = 60) -> dict:
        self.lab.wait(
            f"session {self.job} {state}", lambda: self.session()["state"] == state, patience
        )
        return self.session()

    def kinds(self) -> list[str]:
        """Kinds of the events of this job, oldest first."""
        return [event["kind"] for event in self.events()]

    def events(self) -> list[dict]:
        """The events of this job, oldest first."""
        return json.loads(self.lab.ask("events", self.ref, "--json").stdout)["events"]

    def reclaim(self, verb: str, *words: str, user: str = "", check: bool = True):
        return self.lab.exec(
            "ctl", "reclaim", verb, self.ref, *words, user=user or self.user, check=check
        )

    def output(self) -> str:
        return self.lab.out("ctl", "cat", f"/shared/home/{self.user}/{self.job}.out")

    def cancel(self) -> None:
        self.lab.exec("ctl", "scancel", str(self.job), check=False)


def saved_by_slurm(lab: Lab, job: Counter) -> None:
    """Wait until slurmctld has the job on disk. It saves some seconds after a change, and one that
    is killed before has never heard of it."""
    state = "/var/spool/slurmctld/job_state"
    lab.exec("ctl", "scontrol", "update", f"JobId={job.job}", "Comment=saved")
    changed = float(lab.out("ctl", "date", "+%s.%N"))
    lab.wait("slurmctld to save", lambda: float(lab.out("ctl", "stat", "-c%.9Y", state)) > changed)


@contextmanager
def only(lab: Lab, *nodes: str) -> Iterator[None]:
    """No other node takes jobs meanwhile."""
    every = lab.out("ctl", "sinfo", "-h", "-N", "-p", "main", "-o", "%N").split()
    others = [name for name in every if name not in nodes]
    try:
        if others:
            drain(lab, *others)
        yield
    finally:
        if others:
            resume(lab, *others)


@contextmanager
def configured(lab: Lab, node: str, daemon: str, text: str) -> Iterator[None]:
    """With this in the daemon's configuration there, and without it afterwards."""
    place = "/etc/slurm-reclaim/conf.d/zz-test.toml"
    try:
        lab.exec(node, "sh", "-c", f"cat > {place}", stdin=text)
        lab.restart_daemon(node, daemon)
        yield
    finally:
        lab.exec(node, "rm", "-f", place)
        lab.restart_daemon(node, daemon)


def drain(lab: Lab, *nodes: str) -> None:
    lab.exec("ctl", "scontrol", "update", f"NodeName={','.join(nodes)}", "State=DRAIN", "Reason=t")


def resume(lab: Lab, *nodes: str) -> None:
    lab.exec("ctl", "scontrol", "update", f"NodeName={','.join(nodes)}", "State=RESUME")


def processes(lab: Lab, node: str, user: str = "alice") -> list[str]:
    """Command lines of the user's processes on a node."""
    return lab.exec(node, "ps", "-o", "pid=,args=", "-u", user, check=False).stdout.splitlines()


def outside_of_job(lab: Lab, node: str, user: str = "alice") -> dict[str, str]:
    """Of the user's processes on the node that are not in all those cgroups, of every controller,
    into which Slurm has put its own process of their one job: PID and /proc/PID/cgroup."""
    script = "for pid in $(pgrep -u {0}); do echo PID $pid; cat /proc/$pid/cgroup; done"
    said = lab.out(node, "sh", "-c", script.format(user)).split("PID ")[1:]
    found = {pid: groups.strip() for pid, groups in (part.split("\n", 1) for part in said)}
    relay = found[lab.out(node, "pgrep", "-u", user, "-x", "reclaim-relay")]
    assert "/step_batch/" in relay
    return {pid: groups for pid, groups in found.items() if groups != relay}


def settle(seconds: float) -> None:
    """Let the controller look at the world a few times."""
    time.sleep(seconds)
