# SPDX-License-Identifier: Apache-2.0
"""A real Slurm with a stand-in for the agent (fake_agent.py), and jobs on it."""

from __future__ import annotations

import json
import re
import time

from tests.cluster.conftest import Lab

NODE = "n1"
FAKE = "/root/fake_agent.py"
LOG = "/root/fake-agent.jsonl"
SOCKET = "/run/slurm-reclaim/agent.sock"
LIBEXEC = "/usr/libexec/slurm-reclaim"
FRESH = ("mode=fresh", "last_pid=299", "block_io_uring=0", "private_tmp=")


class Bench:
    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.jobs: list[int] = []
        self.out = f"/shared/home/alice/spank-{time.time_ns()}"

    def root(self, text: str, check: bool = True) -> str:
        return self.lab.exec(NODE, "bash", "-c", text, check=check).stdout

    def start_agent(self, *answer: str) -> None:
        self.root(
            f"setsid python3 {FAKE} --log {LOG} {' '.join(answer)} >/root/fake.out 2>&1 "
            "</dev/null & echo $! > /root/fake.pid"
        )
        self.lab.wait("the fake agent", lambda: "ready" in self.root("cat /root/fake.out"))

    def stop_agent(self) -> None:
        self.root(f"[ ! -e /root/fake.pid ] || kill $(cat /root/fake.pid); rm -f /root/fake.pid; "
                  f"rm -f {SOCKET}", check=False)  # fmt: skip

    def answer(self, *words: str) -> None:
        self.root(f"python3 {FAKE} --order op=answer {' '.join(words)}")

    def order(self, job: int, *words: str) -> dict[str, str]:
        return json.loads(self.root(f"python3 {FAKE} --order op=order job={job} {' '.join(words)}"))

    def events(self, job: int) -> list[dict[str, str]]:
        lines = self.root(f"cat {LOG} 2>/dev/null || true").splitlines()
        return [e for e in map(json.loads, lines) if e.get("job") == str(job)]

    def attached(self, job: int) -> dict[str, str]:
        return self.lab.wait(
            f"job {job} attaches",
            lambda: next((e for e in self.events(job) if e.get("op") == "attach"), None),
        )

    def submit(self, text: str, *options: str) -> int:
        job = self.lab.sbatch(
            f"#!/bin/bash\n{text}\n", "-w", NODE, "-o", f"{self.out}-%j", "-D",
            "/shared/home/alice", *options,
        )  # fmt: skip
        self.jobs.append(job)
        return job

    def text(self, job: int) -> str:
        """Read where it runs: over NFS it may be half a minute later anywhere else."""
        script = f"cat {self.out}-{job} 2>/dev/null || true"
        return self.lab.out(NODE, "sh", "-c", script, user="alice")

    def has(self, job: int, words: str, patience: float = 30) -> str:
        self.lab.wait(f"{words!r} from job {job}", lambda: words in self.text(job), patience)
        return self.text(job)

    def squeue(self, job: int) -> str:
        return self.lab.exec(
            "ctl", "squeue", "-h", "-j", str(job), "-o", "%T", check=False
        ).stdout.strip()

    def field(self, job: int, name: str) -> str:
        shown = self.lab.out("ctl", "scontrol", "show", "job", str(job))
        return re.search(rf"\b{name}=(\S+)", shown).group(1)

    def ended(self, job: int, patience: float = 40) -> tuple[str, str]:
        """JobState and ExitCode."""

        def done() -> tuple[str, str] | None:
            state = self.field(job, "JobState")
            return None if state in ("RUNNING", "PENDING", "COMPLETING", "CONFIGURING") else (
                state, self.field(job, "ExitCode"))  # fmt: skip

        return self.lab.wait(f"the end of job {job}", done, patience)

    def run(self, text: str, *options: str) -> tuple[str, tuple[str, str]]:
        job = self.submit(text, *options)
        end = self.ended(job)
        return self.text(job), end

    def starts(self, job: int) -> None:
        """A requeued job, without Slurm's two minutes. Slurm sets those late, while the job is
        completing, so asking once is not enough."""

        def running() -> bool:
            self.lab.exec("ctl", "scontrol", "update", f"jobid={job}", "starttime=now", check=False)
            return self.squeue(job) in ("RUNNING", "SPECIAL_EXIT")

        # In the second in which its last run ended slurmd refuses it (stages/hold.py).
        time.sleep(1.1)
        self.lab.wait(f"job {job} starts", running, 60)

    def end_soon(self, *jobs: int, seconds: int = 1) -> None:
        """Their time limit, which can't be shorter than a minute, ends them in so many seconds."""
        for job in jobs:
            self.lab.exec("ctl", "scontrol", "update", f"jobid={job}", f"endtime=now+{seconds}")

    def cancel(self, job: int, *options: str) -> None:
        self.lab.exec("ctl", "scancel", *options, str(job))
