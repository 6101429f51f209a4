"""CUDA sessions and Slurm: forms of request, other cards after a restore, what the session is told
of them, upgrades of the driver. On simulated cards; gres.conf counts them backwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.gpu_sessions import SPLIT, changed, script
from tests.cluster.sessions import Counter, configured, only

pytestmark = pytest.mark.cluster

SCRIPT = "/run/simulated-gpu/nvml"
MIB = 1 << 20
HELD = 32 * MIB
# `old` is what the script was started with, `now` what it takes over every second.
BATCH = """#!/bin/bash
home=/shared/home/alice
say() { echo "$CUDA_VISIBLE_DEVICES|$SLURM_JOB_GPUS|$SLURMD_NODENAME|${SLURM_RESTART_COUNT:-0}"; }
put() { say >$home/$1-$SLURM_JOB_ID.new; mv $home/$1-$SLURM_JOB_ID.new $home/$1-$SLURM_JOB_ID; }
put old
[ -z "$ONLY" ] || export CUDA_VISIBLE_DEVICES=$ONLY
cuda-session --mib 32 --interval 0.5 --out $home/cuda-$SLURM_JOB_ID &
while sleep 1; do
    eval "$(reclaim environment)"
    put now
done
"""


@dataclass
class Round:
    pid: int
    node: str
    uuid: str
    said: str


class CudaJob(Counter):
    """A batch job with one CUDA process that reads its memory again and again."""

    def text(self, name: str) -> str:
        path = f"/shared/home/alice/{name}-{self.job}"
        return self.lab.exec("ctl", "cat", path, check=False).stdout.strip()

    def rounds(self) -> list[Round]:
        words = [line.split() for line in self.text("cuda").splitlines()]
        return [Round(int(w[1]), w[2], w[3], w[4]) for w in words if len(w) == 5]

    def computes(self) -> Round:
        """Wait for two more rounds; the last one."""
        before = len(self.rounds())
        self.lab.wait("it to compute", lambda: len(self.rounds()) >= before + 2, 60)
        last = self.rounds()[-1]
        assert last.said == "ok", last
        return last

    def told(self) -> list[str]:
        """CUDA_VISIBLE_DEVICES, SLURM_JOB_GPUS, node and restart count by `reclaim environment`,
        of the run that it is in."""
        runs = str(self.session()["restarts"])
        self.lab.wait(
            "the session to take its environment over",
            lambda: self.text("now").endswith(f"|{runs}"),
        )
        return self.text("now").split("|")


@pytest.fixture
def start(gpu_lab: Lab) -> Iterator[Callable[..., CudaJob]]:
    started: list[CudaJob] = []

    def submit(*options: str) -> CudaJob:
        words = ("--reclaim=on", "-o", "/dev/null", "-D", "/shared/home/alice")
        job = CudaJob(gpu_lab, gpu_lab.sbatch(BATCH, *words, *options), "alice")
        started.append(job)
        job.wait_for("RUNNING")
        job.wait_for_session("ACTIVE")
        job.computes()
        return job

    yield submit
    for job in started:
        job.cancel()
    gpu_lab.wait("the jobs' end", lambda: gpu_lab.out("ctl", "squeue", "-h") == "", 60)


def hibernate(job: CudaJob) -> dict:
    job.reclaim("hibernate", "--no-wait")
    return job.wait_for_session("HIBERNATED", 120)


def restore(job: CudaJob) -> dict:
    job.reclaim("restore", "--no-wait")
    return job.wait_for_session("ACTIVE", 120)


FORMS = ["--gres=gpu:1", "--gres=gpu:simulated:1", "--gpus=1", "--gpus-per-node=1",
         "--gpus-per-task=1 --ntasks=1"]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_each_form_comes_back_on_another_card_of_another_node(
    gpu_lab: Lab, start: Callable[..., CudaJob], form: str
) -> None:
    with only(gpu_lab, "n1"):
        job = start(*form.split())
    before = job.computes()
    assert before.node == "n1"
    gpu_lab.wait("what it holds", lambda: (job.session()["vram_held"] or 0) >= HELD, 60)
    asleep = hibernate(job)
    assert asleep["vram_freed"] >= HELD
    assert "VRAM" in job.squeue("%k")
    committed = next(e for e in job.events() if e["kind"] == "checkpoint-committed")
    assert committed["details"]["freed_gpu"] == asleep["vram_freed"]
    assert "freed" in gpu_lab.out("ctl", "reclaim", "list", user="alice")
    with only(gpu_lab, "n2"):
        restore(job)
    after = job.computes()
    assert (after.pid, after.node) == (before.pid, "n2")
    assert after.uuid != before.uuid
    _, _, node, runs = job.told()
    assert (node, runs) == ("n2", "1")
    # and that is news: what it was started with is of the first run
    assert job.text("old").split("|")[2:] == ["n1", "0"]


STALE = "--export=ALL,SLURM_GPUS=simulated:1,SLURM_GPUS_ON_NODE=1,SLURM_JOB_GPUS=0"


def test_a_rule_takes_in_jobs_by_the_gpu_they_have(gpu_lab: Lab) -> None:
    """Not by one of the job in whose environment they were submitted."""
    rules = '[[adopt]]\npartition = ["main"]\ngres = ["gpu"]\n'
    rules += '[[adopt]]\npartition = ["gpu"]\ngres = ["gpu:simulated*"]\n'
    wanted = {
        (STALE,): "",
        ("-p", "gpu", STALE): "",
        ("-p", "gpu", "--gpus=1"): "",
        ("--gres=gpu:simulated:1",): "ACTIVE",
        ("-p", "gpu", "--gpus=simulated:1"): "ACTIVE",
    }
    jobs: dict[tuple[str, ...], Counter] = {}
    with configured(gpu_lab, "n1", "reclaim-agent", rules):
        try:
            for options, state in wanted.items():
                words = ["-w", "n1", "--mem=100M", "-D", "/tmp", "-o", "/dev/null", *options]
                number = gpu_lab.sbatch("#!/bin/sh\nsleep 600\n", *words)
                jobs[options] = job = Counter(gpu_lab, number, "alice")
                job.wait_for("RUNNING")
                if state:
                    job.wait_for_session(state)
                    job.cancel()  # the next one needs its card
            for options, job in jobs.items():
                assert wanted[options] or not job.session()["state"], options
        finally:
            for job in jobs.values():
                job.cancel()


def test_another_index_on_the_same_node(gpu_lab: Lab, start: Callable[..., CudaJob]) -> None:
    with only(gpu_lab, "n1"):
        job = start("--gres=gpu:1")
        before, (_, index, _, _) = job.computes(), job.told()
        hibernate(job)
        # somebody else gets the card that it had
        other = start("--gres=gpu:1")
        assert other.told()[1] == index
        restore(job)
        after, (visible, now, node, _) = job.computes(), job.told()
    assert (after.pid, after.node, node) == (before.pid, "n1", "n1")
    assert after.uuid != before.uuid
    assert now != index
    # With ConstrainDevices it counts within the job.
    assert visible == "0"


def test_one_of_two_cards_by_its_index(gpu_lab: Lab, start: Callable[..., CudaJob]) -> None:
    """The other one is the job's as well, and has its place in the map; n2 counts them the other
    way round."""
    with only(gpu_lab, "n1"):
        job = start("--gpus-per-node=simulated:2", "--export=ALL,ONLY=1")
    before = job.computes()
    assert {each.uuid for each in job.rounds()} == {before.uuid}
    hibernate(job)
    with only(gpu_lab, "n2"):
        restore(job)
    after = job.computes()
    assert (after.pid, after.node) == (before.pid, "n2")
    assert {each.uuid for each in job.rounds()} == {before.uuid, after.uuid}


def test_on_a_card_that_is_split_it_is_watched_only(
    gpu_lab: Lab, start: Callable[..., CudaJob]
) -> None:
    changed(gpu_lab, "n1", SPLIT)
    try:
        with only(gpu_lab, "n1"):
            job = start("--gres=gpu:1")
        before = job.computes()
        refused = job.reclaim("hibernate", check=False)
        assert refused.returncode == 21
        assert f"mig: the job's GPU {before.uuid} is split by MIG" in refused.stderr
        gpu_lab.wait(
            "its blocker",
            lambda: any(b.startswith("mig: ") for b in job.session()["blockers"]),
            60,
        )
        assert (job.session()["state"], job.state) == ("ACTIVE", "RUNNING")
        assert job.computes().pid == before.pid
    finally:
        script(gpu_lab, "n1")


def test_nobody_else_reads_what_the_session_is_told(
    gpu_lab: Lab, start: Callable[..., CudaJob]
) -> None:
    job = start("--gres=gpu:1")
    job.told()
    path = f"/run/slurm-reclaim/environment/{job.job}"
    node = job.node
    assert gpu_lab.out(node, "stat", "-c", "%U %a", path) == "alice 400"
    assert gpu_lab.exec(node, "cat", path, user="bob", check=False).returncode != 0
    asked = gpu_lab.exec(
        node, "env", f"SLURM_JOB_ID={job.job}", "reclaim", "environment", user="bob", check=False
    )
    assert asked.returncode == 26
    job.cancel()
    gpu_lab.wait(
        "it to be gone", lambda: gpu_lab.exec(node, "ls", path, check=False).returncode != 0
    )


@pytest.mark.parametrize("form", ["--gres=shard:1", "--gres=mps:50"])
def test_a_share_is_watched_and_says_early_that_it_can_not_be_saved(
    gpu_lab: Lab, start: Callable[..., CudaJob], form: str
) -> None:
    """C47, C41."""
    job = start(form)
    name = "mps" if "mps" in form else "gpu-share"
    gpu_lab.wait(
        "its blocker",
        lambda: any(b.startswith(f"{name}: ") for b in job.session()["blockers"]),
        60,
    )
    assert "can't be hibernated" in gpu_lab.out("ctl", "reclaim", "list", user="alice")
    refused = job.reclaim("hibernate", check=False)
    assert refused.returncode != 0
    assert "share of a card" in refused.stderr + refused.stdout
    assert job.session()["state"] == "ACTIVE"
    job.computes()


def set_driver(lab: Lab, version: str, *nodes: str) -> None:
    """An upgrade takes the node's agent down, too."""
    for node in nodes:
        lab.exec(node, "sed", "-i", f"s/^driver .*/driver {version}/", SCRIPT)
        lab.restart_daemon(node, "reclaim-agent")
    lab.wait("both agents to tell", lambda: drivers(lab, *nodes) == {version}, 60)


def drivers(lab: Lab, *nodes: str) -> set[str]:
    script = (
        "import asyncio;"
        "from slurm_reclaim.adapters.transport.client import ControllerClient;"
        "from slurm_reclaim.adapters.transport.munge import Munge;"
        "from slurm_reclaim.config.load import load;"
        "from slurm_reclaim.model.status import Status\n"
        "async def main():\n"
        "    async with ControllerClient(load(None), Munge()) as controller:\n"
        "        status = await controller.get('/v1/status', Status)\n"
        "        for node in status.nodes: print(node.name, node.facts.gpu_driver)\n"
        "asyncio.run(main())"
    )
    said = lab.out("ctl", "/opt/slurm-reclaim/bin/python3", "-I", "-c", script)
    pairs = [line.split(" ") for line in said.splitlines()]
    return {version for name, version in pairs if name in nodes}


def test_an_upgrade_of_the_driver(gpu_lab: Lab, start: Callable[..., CudaJob]) -> None:
    old, new = "580.65.06", "590.44.01"
    job = start("--gres=gpu:1")
    before = job.computes()
    hibernate(job)

    def plan(*words: str) -> dict:
        asked = ("check", "--upgrade", "--driver", new, "--json", *words)
        return json.loads(gpu_lab.exec("ctl", "reclaim", *asked, check=False).stdout)

    (lost,) = plan()["affected"]
    assert (lost["job"], lost["user"], lost["lost"]) == (str(job.job), "alice", True)
    (less,) = plan("--nodes", "n1")["affected"]
    assert (less["lost"], less["left"]) == (False, "n2")
    asked = ("check", "--upgrade", "--driver", new)
    assert gpu_lab.exec("ctl", "reclaim", *asked, user="bob", check=False).returncode == 26
    try:
        set_driver(gpu_lab, new, "n1", "n2")
        seen = gpu_lab.wait("the mark", lambda: job.session()["unfit"], 60)
        assert f"its NVIDIA driver is {new}, the checkpoint has {old}" in seen["reason"]  # type: ignore[index]
        refused = job.reclaim("restore", check=False)
        assert refused.returncode != 0
        assert f"its NVIDIA driver is {new}" in refused.stderr
        assert job.session()["state"] == "HIBERNATED"
    finally:
        set_driver(gpu_lab, old, "n1", "n2")
    restore(job)
    assert job.computes().pid == before.pid
    assert job.session()["unfit"] is None
