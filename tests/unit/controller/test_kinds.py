"""A session is compared with one node of each kind, and what comes of it is as if with each."""

from __future__ import annotations

import random
import time
from dataclasses import replace

from slurm_reclaim.model.checkpoint import GpuCard, GpuNeeds, Needs
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.job import Job, Node
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import NodeFacts, Report
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages.fit import SILENT, fit, lacking, mismatch, stranded
from slurm_reclaim.stages.view import View

FLAGS = " ".join(f"flag{number}" for number in range(100))
FACTS = NodeFacts(
    arch="x86_64", kernel="6.1.0", criu="4.2.1", criu_ok=True, plugin_seen=True, store_ok=True,
    cpu_flags=FLAGS, xsave=2696, glibc="2.36", glibc_build="ab" * 20, mounts=("/home nfs4",),
    memory_total=256 << 30,
)  # fmt: skip
NEEDS = Needs(
    arch="x86_64", kernel="6.1.0", criu="4.2.1", max_pid=400, memory=1 << 30, cpu_flags=FLAGS,
    xsave=2696, glibc="2.36", glibc_build="ab" * 20, mounts=("/home nfs4",),
)  # fmt: skip
JOB = Job(
    job_id=7, uid=1001, user="alice", name="j", account="a", partition="gpu", qos="q",
    state="PENDING", reason="", restarts=1, submitted=1, started=0, ends=0, time_limit=0,
    time_used=0, nodes=(), tres="",
)  # fmt: skip
SESSION = Session(
    SessionId("c", 7, 1001, 1), user="alice", name="j", account="a", partition="gpu", qos="q",
    state=State.HIBERNATED, reason="", since=0.0, node="n1", restarts=1, checkpoint=0,
    checkpoint_bytes=1, tres="", needs=NEEDS,
)  # fmt: skip
NOW = 1000.0


def seen(told: dict[str, NodeFacts], unheard: int = 0, silent: set[str] | None = None) -> View:
    view = View(0.0)
    names = [*told, *(f"x{number}" for number in range(unheard))]
    view.nodes = {name: Node(name, frozenset({"idle"}), ("gpu",)) for name in names}
    for name, facts in told.items():
        view.heard(Report(name, "boot", NOW, facts), NOW - (900 if name in (silent or ()) else 0))
    return view


def drawn(chance: random.Random, number: int) -> NodeFacts:
    """Of a few kinds, with the small differences that machines of one kind have."""
    cards = tuple(
        GpuCard(f"GPU-{number}-{card}", chance.choice(["A100", "L4"]), 40 << 30, mig=False)
        for card in range(chance.choice([0, 1, 2]))
    )
    return replace(
        FACTS,
        kernel=chance.choice(["6.1.0", "5.14.0"]),
        store_ok=chance.random() < 0.9,
        memory_total=chance.choice([0, 8 << 30, (8 << 30) + 4096, 256 << 30]),
        mounts=chance.choice([None, ("/home nfs4",), ("/home ext4",), ()]),
        hugepages=chance.choice([0, 1 << 30]),
        gpus=cards,
        gpu_driver=chance.choice(["575.1", "580.2"]) if cards else "",
        gpu_problem=chance.choice(["", "", "NVML is silent"]),
        store_free=chance.randrange(1 << 40),
    )


def wanted(chance: random.Random) -> Needs:
    cards = tuple(
        GpuCard(f"GPU-{chance.randrange(60)}-{card}", chance.choice(["A100", "L4"]), 40 << 30, 1)
        for card in range(chance.choice([1, 1, 2]))
    )
    gpu = GpuNeeds(chance.choice(["575.1", "580.2"]), cards, (300,))
    return replace(
        NEEDS,
        kernel=chance.choice(["6.1.0", "5.14.0"]),
        memory=chance.choice([1 << 30, (8 << 30) + 1, 300 << 30]),
        mounts=chance.choice([(), ("/home nfs4",), ("/data lustre",)]),
        hugepages=chance.choice([0, 1]),
        gpu=chance.choice([None, gpu]),
    )


def test_it_is_as_if_each_node_had_been_looked_at() -> None:
    chance = random.Random(11)
    for _ in range(7):
        told = {f"n{number}": drawn(chance, number) for number in range(60)}
        silent = set(chance.sample(sorted(told), 5))
        view = seen(told, chance.choice([0, 2]), silent)
        unheard = view.nodes.keys() - told.keys()
        for _ in range(20):
            needs = wanted(chance)
            found = fit(replace(SESSION, needs=needs), JOB, view, NOW, 30.0)
            good = {n for n, f in told.items() if n not in silent and not lacking(needs, f)}
            assert set(found.nodes) == good
            assert found.unfit.keys() == view.nodes.keys() - good
            assert {n for n, why in found.unfit.items() if why == SILENT} == silent | unheard
            why = stranded(needs, "gpu", view, NOW, 30.0)
            if any(not mismatch(needs, facts) for facts in told.values()):
                assert why == ""
            else:
                assert (why is None) == bool(unheard)
                assert unheard or why


def test_what_is_said_of_a_node_is_of_that_node() -> None:
    told = {"n1": FACTS, "n2": replace(FACTS, memory_total=512 << 20)}
    found = fit(SESSION, JOB, seen(told), NOW, 30.0)
    assert found.nodes == ("n1",)
    assert found.unfit == {"n2": "it has 512.0 MiB of memory, the checkpoint needs 1.0 GiB"}


def test_a_node_that_changes_is_looked_at_anew() -> None:
    view = seen({"n1": FACTS})
    assert fit(SESSION, JOB, view, NOW, 30.0).nodes == ("n1",)
    view.heard(Report("n1", "boot", NOW + 5, replace(FACTS, kernel="5.14.0")), NOW + 5)
    assert fit(SESSION, JOB, view, NOW + 5, 30.0).nodes == ()


def test_thousands_of_sessions_that_all_need_something_else() -> None:
    """0.06 s for each session at 2,000 nodes made it half a minute for what is a moment."""
    view = seen({f"n{number}": replace(FACTS, store_free=number) for number in range(2000)})
    began = time.process_time()
    for number in range(500):
        needs = replace(NEEDS, max_pid=400 + number, memory=(1 << 30) + number)
        assert len(fit(replace(SESSION, needs=needs), JOB, view, NOW, 30.0).nodes) == 2000
        # Between them agents report, and the room in the store is never the same.
        again = replace(FACTS, store_free=number)
        view.heard(Report("n1", "boot", NOW, again), NOW + number / 100)
    assert time.process_time() - began < 5.0
