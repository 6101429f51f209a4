"""What Slurm really said (recorded/<version>.json, made by recorder.py), read by the adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_reclaim.adapters.slurm import squeue
from slurm_reclaim.adapters.slurm.nodeset import NodeSetNames
from slurm_reclaim.adapters.slurm.rows import Cutter
from slurm_reclaim.adapters.slurm.scheduler import _NODE_FIELDS, _nodes
from slurm_reclaim.model.job import Job, JobDetail
from tests.unit.slurm.recorder import DETAIL, JOB, NODE, TOKEN

VERSIONS = sorted(p.stem for p in (Path(__file__).parent / "recorded").glob("*.json"))
ODD = 'a|b\nc  d,e "q" é\\xff\x01 Requeue=0 JobState=X'
NAMES = NodeSetNames()


@pytest.fixture(params=VERSIONS)
def said(request: pytest.FixtureRequest) -> dict[str, Any]:
    path = Path(__file__).parent / "recorded" / f"{request.param}.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def jobs(said: dict[str, Any]) -> list[Job]:
    rows = Cutter(squeue.JOB_FIELDS, token=TOKEN).rows(said["jobs"]["out"])
    return [squeue.job_of(row, NAMES) for row in rows]


def named(said: dict[str, Any], name: str) -> Job:
    return max((j for j in jobs(said) if j.name == name), key=lambda j: j.job_id)


def detail(said: dict[str, Any], name: str) -> JobDetail:
    job_id = named(said, name).job_id
    rows = Cutter(squeue.DETAIL_FIELDS, token=TOKEN).rows(said["details"][str(job_id)]["out"])
    return next(
        d for row in rows if (d := squeue.detail_of(row, NAMES)).job.job_id == job_id
    )  # fmt: skip


def test_the_recorder_asks_what_the_adapter_asks() -> None:
    assert tuple(JOB) == squeue.JOB_FIELDS
    assert tuple(JOB + DETAIL) == squeue.DETAIL_FIELDS
    assert tuple(NODE) == _NODE_FIELDS


def test_every_job_is_read_once(said: dict[str, Any]) -> None:
    found = jobs(said)
    assert len(found) == len({job.job_id for job in found}) > 30
    assert {job.uid for job in found} == {2001}
    assert {job.user for job in found} == {"alice"}


def test_a_running_job(said: dict[str, Any]) -> None:
    job = named(said, "plain")
    assert (job.state, job.running, job.held, job.reason) == ("RUNNING", True, False, "")
    assert (job.time_limit, job.nodes, job.partition) == (600, ("n1",), "main")
    assert job.submitted <= job.started == job.ends - 600
    assert job.array_task is None
    assert not job.array_job_id


def test_names_can_not_forge_fields(said: dict[str, Any]) -> None:
    job = named(said, ODD)
    assert (job.state, job.nodes) == ("RUNNING", ("n1",))
    assert detail(said, ODD).requeue
    assert named(said, "").state == "RUNNING"
    assert named(said, "日本 ").reason == "BeginTime"


def test_array_tasks(said: dict[str, Any]) -> None:
    tasks = [j for j in jobs(said) if j.name == "tasks" and not j.finished]
    (running,) = [j for j in tasks if j.running]
    (pending,) = [j for j in tasks if j.waiting]
    assert (running.array_task, running.array_job_id) == (1, pending.job_id)
    assert pending.array_task is None


def test_what_held_looks_like(said: dict[str, Any]) -> None:
    asleep = named(said, "asleep")
    assert (asleep.state, asleep.held, asleep.restarts) == ("SPECIAL_EXIT", True, 1)
    assert asleep.waiting
    assert not asleep.nodes
    held = named(said, "held")
    assert (held.state, held.held, held.reason) == ("PENDING", True, "JobHeldUser")


def test_only_the_json_tells_who_holds_it(said: dict[str, Any]) -> None:
    reasons = {}
    for name in ("asleep", "held by an operator"):
        job = named(said, name)
        assert job.reason == "job requeued in held state"
        text = said["json"][str(job.job_id)]["out"]
        reasons[name] = squeue.state_reason(text, job.job_id)
    assert reasons == {"asleep": "JobHeldUser", "held by an operator": "JobHeldAdmin"}


def test_details(said: dict[str, Any]) -> None:
    plain, asleep = detail(said, "plain"), detail(said, "asleep")
    assert plain.comment == 'it is | mine, "quoted" a=b'
    assert (plain.batch, plain.requeue, plain.node_count, plain.het) == (True, True, 1, False)
    assert (asleep.excluded_nodes, asleep.comment) == ("n1", "hibernated | now")
    assert asleep.admin_comment == "JS1:x [slurm-reclaim: y]"


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("stays", "requeue", False),
        ("two", "node_count", 2),
        ("het1", "het", True),
        ("het2", "het", True),
        ("interactive", "batch", False),
        ("held", "excluded_nodes", "n2"),
    ],
)
def test_what_can_not_be_hibernated_shows(
    said: dict[str, Any], name: str, field: str, value: object
) -> None:
    assert getattr(detail(said, name), field) == value


def test_an_unknown_job_is_said_in_these_words(said: dict[str, Any]) -> None:
    answer = said["details"]["999999"]
    assert answer["code"] == 1
    assert squeue._UNKNOWN_JOB in answer["err"]


def test_nodes(said: dict[str, Any]) -> None:
    nodes = _nodes(list(Cutter(_NODE_FIELDS, token=TOKEN).rows(said["nodes"]["out"])))
    assert [(n.name, tuple(sorted(n.partitions))) for n in nodes] == [
        ("n1", ("gpu", "main")),
        ("n2", ("gpu", "main")),
    ]
    assert all(node.usable for node in nodes)
    assert [node.hosts for node in nodes] == [("n1",), ("n2",)]
