"""Which cards a job's readings are of, on nodes with simulated GPUs.

gres.conf names the device files backwards (reclaim_lab/slurm_files.py) and NVML
counts them forwards: whoever takes one number for another reads the wrong card.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from reclaim_lab import gpus

from tests.cluster.conftest import Lab

pytestmark = pytest.mark.cluster

INSIDE = Path(__file__).with_name("inside") / "gpu_meter.py"
PYTHON = "/opt/slurm-reclaim/bin/python3"
RECORDS = "/var/lib/slurm-reclaim/sessions"
SCRIPT = "/run/simulated-gpu/nvml"
# Each device file that the job itself can open: the kernel refuses the others with EPERM.
BATCH = """#!/bin/bash
for file in /dev/nvidia[0-9]*; do
    { : <$file; } 2>&1 | grep -q 'not permitted' || echo ${file#/dev/nvidia}
done >$HOME/cards-$SLURM_JOB_ID.new
mv $HOME/cards-$SLURM_JOB_ID.new $HOME/cards-$SLURM_JOB_ID
sleep 600
"""


CUDA = "#!/bin/bash\nexec cuda-session --mib 16 --interval 0.2 --out $HOME/cuda-$SLURM_JOB_ID\n"


@dataclass
class GpuJob:
    lab: Lab
    id: int

    @property
    def opens(self) -> list[int]:
        path = f"/shared/home/alice/cards-{self.id}"
        done = self.lab.wait(
            "the job to try its cards",
            lambda: (got := self.lab.exec("n1", "cat", path, check=False)).returncode == 0 and got,
        )
        return [int(word) for word in done.stdout.split()]  # type: ignore[attr-defined]

    def measured(self) -> dict:
        """By the real meter, on the node."""
        self.lab.wait(
            "the agent to know the session",
            lambda: (
                self.lab.exec("n1", "ls", f"{RECORDS}/{self.id}.json", check=False).returncode == 0
            ),
        )
        done = self.lab.exec("n1", PYTHON, "-I", "-c", INSIDE.read_text(), str(self.id))
        return json.loads(done.stdout)


@pytest.fixture
def start(gpu_lab: Lab) -> Iterator[Callable[..., GpuJob]]:
    started: list[GpuJob] = []

    def submit(*options: str, batch: str = BATCH) -> GpuJob:
        number = gpu_lab.sbatch(
            batch,
            "-w",
            "n1",
            "--reclaim=on",
            "-o",
            "/dev/null",
            "-D",
            "/shared/home/alice",
            *options,
        )
        started.append(GpuJob(gpu_lab, number))
        gpu_lab.wait(
            f"job {number} to run",
            lambda: gpu_lab.out("ctl", "squeue", "-h", "-j", str(number), "-o", "%T") == "RUNNING",
        )
        return started[-1]

    yield submit
    for job in started:
        gpu_lab.exec("ctl", "scancel", "-s", "KILL", str(job.id), check=False)
    gpu_lab.wait("the jobs' end", lambda: gpu_lab.out("ctl", "squeue", "-h") == "")


def uuid(minor: int) -> str:
    """As the lab's own cards have it: who knows a card by it must find it again, whichever test
    wrote the script last."""
    return gpus.uuid("n1", minor)


def simulate(lab: Lab, **lines: list[str]) -> None:
    """Cards 0 and 1 do nothing but what is given as `card0=[...]`."""
    text = ""
    for minor in (0, 1):
        given = lines.get(f"card{minor}", [])
        text += f"card\nuuid {uuid(minor)}\nname Simulated GPU\nminor {minor}\nvram 1000 0\n"
        text += "rates 0 0 0 0\npcie 0 0\n"
        for kind in ("gpu", "memory", "encoder", "decoder"):
            if not any(line.startswith(f"wave {kind} ") for line in given):
                text += f"wave {kind} 60 0 0\n"
        text += "".join(f"{line}\n" for line in given)
    lab.exec("n1", "sh", "-c", f"cat >{SCRIPT}.new; mv {SCRIPT}.new {SCRIPT}", stdin=text)


BUSY = ["wave gpu 60 60 90"]

FORMS = [
    "--gres=gpu:1",
    "--gres=gpu:simulated:1",
    "--gpus=1",
    "--gpus-per-node=1",
    "--gpus-per-task=1 --ntasks=1",
    "--gres=mps:50",
    "--gres=shard:1",
]


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_request_is_measured_on_its_own_card(
    gpu_lab: Lab, start: Callable[..., GpuJob], form: str
) -> None:
    """C41. The other card is busy, ours is not; then the other way round."""
    job = start(*form.split())
    (own,) = job.opens
    simulate(gpu_lab, **{f"card{1 - own}": BUSY})
    seen = job.measured()
    assert seen["grant"]["reachable"] == [own]
    assert seen["readings"]["gpu"][0] == 0.0
    assert [held["uuid"] for held in seen["held"]] == [uuid(own)]
    use = f"use {seen['child']} 90 0 0 0"  # whole cards need no such line, shares do
    simulate(gpu_lab, **{f"card{own}": [*BUSY, use]})
    assert job.measured()["readings"]["gpu"][0] == 90.0


@pytest.mark.parametrize("form", ["--gres=mps:50", "--gres=shard:1"])
def test_of_a_shared_card_others_do_not_count(
    gpu_lab: Lab, start: Callable[..., GpuJob], form: str
) -> None:
    job = start(*form.split())
    (own,) = job.opens
    simulate(gpu_lab, **{f"card{own}": [*BUSY, "use 1 90 0 0 0", "process 1 10"]})
    seen = job.measured()
    assert seen["readings"]["gpu"][0] == 0.0
    assert len(seen["held"][0]["foreign"]) == 1
    failing = "error nvmlDeviceGetProcessUtilization NOT_SUPPORTED"
    simulate(gpu_lab, **{f"card{own}": [*BUSY, failing]})
    assert job.measured()["readings"]["gpu"][0] is None


def test_a_job_without_a_gpu_has_no_gpu_signals(gpu_lab: Lab, start: Callable[..., GpuJob]) -> None:
    job = start()
    assert job.opens == []
    seen = job.measured()
    assert seen["grant"] is None
    assert "readings" not in seen


def test_a_variable_of_the_users_makes_no_gpu_job(
    gpu_lab: Lab, start: Callable[..., GpuJob]
) -> None:
    assert start("--export=ALL,SLURM_JOB_GPUS=0").measured()["grant"] is None


def test_two_jobs_two_cards(gpu_lab: Lab, start: Callable[..., GpuJob]) -> None:
    first, second = start("--gres=gpu:1"), start("--gres=gpu:1")
    assert sorted(first.opens + second.opens) == [0, 1]
    simulate(gpu_lab, **{f"card{first.opens[0]}": BUSY})
    assert first.measured()["readings"]["gpu"][0] == 90.0
    assert second.measured()["readings"]["gpu"][0] == 0.0


def test_both_cards_of_one_job(gpu_lab: Lab, start: Callable[..., GpuJob]) -> None:
    job = start("--gpus=2")
    simulate(gpu_lab, card1=BUSY)
    seen = job.measured()
    assert seen["readings"]["gpu"][0] == 90.0
    assert [held["uuid"] for held in seen["held"]] == [uuid(0), uuid(1)]


def test_contexts_are_the_sessions_and_others_are_named(
    gpu_lab: Lab, start: Callable[..., GpuJob]
) -> None:
    job = start("--gres=gpu:1")
    (own,) = job.opens
    child = job.measured()["child"]
    simulate(
        gpu_lab, **{f"card{own}": [f"process {child} 300", "process 1 400", "process 999999 5"]}
    )
    (held,) = job.measured()["held"]
    assert (held["memory"], held["contexts"]) == (300, 1)
    assert held["foreign"] == ["sleep (pid 1)", "(pid 999999, gone)"]


@dataclass
class CudaJob:
    """A simulated CUDA session: what it says of itself, and its process on the node."""

    job: GpuJob

    def __post_init__(self) -> None:
        self.job.lab.wait("the session's first round", self.lines)
        self.pid = self.job.lab.out("n1", "pgrep", "-f", "python3.*cuda-session")

    def lines(self) -> list[list[str]]:
        """Count, its own PID, node, UUID, ok or not."""
        path = f"/shared/home/alice/cuda-{self.job.id}"
        done = self.job.lab.exec("n1", "cat", path, check=False)
        return [line.split() for line in done.stdout.splitlines()]

    def goes_on(self) -> list[str]:
        seen = len(self.lines())
        self.job.lab.wait("another round", lambda: len(self.lines()) > seen + 1)
        return self.lines()[-1]

    def do(self, *actions: str) -> None:
        for action in actions:
            self.job.lab.exec("n1", "cuda-checkpoint", "--action", action, "--pid", self.pid)

    def devices(self) -> set[str]:
        links = self.job.lab.out("n1", "sh", "-c", f"readlink /proc/{self.pid}/fd/*").split()
        return {link for link in links if link.startswith("/dev/nvidia")}


def test_a_cuda_session_is_on_its_own_card_until_its_checkpoint(
    gpu_lab: Lab, start: Callable[..., GpuJob]
) -> None:
    lines = gpus.idle("n1", 2)
    gpu_lab.exec("n1", "sh", "-c", f"cat >{SCRIPT}.new; mv {SCRIPT}.new {SCRIPT}", stdin=lines)
    session = CudaJob(start("--gres=gpu:1", batch=CUDA))
    (own,) = session.job.measured()["grant"]["reachable"]
    there = {"uuid": gpus.uuid("n1", own), "memory": 16 << 20, "contexts": 1}
    gone = {**there, "memory": 0, "contexts": 0}

    def held() -> dict:
        (found,) = session.job.measured()["held"]
        return {name: found[name] for name in there}

    assert session.goes_on()[2:] == ["n1", gpus.uuid("n1", own), "ok"]
    # On a kernel without drivers for them there are none (reclaim_lab/gpus.py).
    tried = "for file in /dev/nvidia*; do (: <$file) 2>/dev/null && echo $file; done; true"
    usable = set(gpu_lab.out("n1", "sh", "-c", tried).split())
    files = {f"/dev/nvidia{own}", "/dev/nvidiactl", "/dev/nvidia-uvm"} & usable
    assert (session.devices(), held()) == (files, there)
    session.do("lock", "checkpoint")
    assert (session.devices(), held()) == (set(), gone)
    session.do("restore", "unlock")
    assert (session.devices(), held()) == (files, there)
    assert session.goes_on()[4] == "ok"


def test_what_is_known_outlives_the_agent(gpu_lab: Lab, start: Callable[..., GpuJob]) -> None:
    job = start("--gres=shard:1")
    before = job.measured()["grant"]
    gpu_lab.restart_daemon("n1", "reclaim-agent", kill=True)
    assert job.measured()["grant"] == before


def test_a_job_with_a_gpu_on_a_node_without_driver_is_unknown(
    gpu_lab: Lab, start: Callable[..., GpuJob]
) -> None:
    job = start("--gres=gpu:1")
    gpu_lab.exec("n1", "rm", SCRIPT)
    seen = job.measured()["readings"]
    assert {value for value, _ in seen.values()} == {None}
    assert "driver not loaded" in seen["gpu"][1]


def votes(lab: Lab, job: GpuJob) -> dict[str, dict]:
    done = lab.exec("ctl", "reclaim", "explain", str(job.id), "--json", check=False)
    return {vote["signal"]: vote for vote in json.loads(done.stdout).get("votes", [])}


def test_the_agent_itself_tells_and_hangs_with_no_card(
    gpu_lab: Lab, start: Callable[..., GpuJob]
) -> None:
    """Through agent and controller: quiet, in use, and unknown while NVML hangs, when the other
    signals go on."""
    job = start("--gres=gpu:1")
    (own,) = job.opens

    def says(signal: str, vote: str) -> None:
        seen: dict[str, dict] = {}

        def found() -> bool:
            seen.update(votes(gpu_lab, job))
            return seen.get(signal, {}).get("vote") == vote

        try:
            # A reader that hangs from its start on is ended after a minute (watch.START_LONGEST).
            gpu_lab.wait(f"{signal} {vote}", found, patience=150)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {seen.get(signal)}") from None

    simulate(gpu_lab)
    says("gpu", "quiet")
    simulate(gpu_lab, **{f"card{own}": BUSY})
    says("gpu", "use")
    simulate(gpu_lab, **{f"card{own}": ["delay nvmlDeviceGetSamples 1000"]})
    says("gpu", "unknown")
    assert votes(gpu_lab, job)["cpu"]["vote"] == "quiet"
    simulate(gpu_lab)
    says("gpu", "quiet")
