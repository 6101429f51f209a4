"""Sessions and reports are found without a look at all of them, whatever moves or ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.order import Living as Seen
from slurm_reclaim.model.order import NodeFacts, Report, SessionReport
from slurm_reclaim.model.session import Session
from slurm_reclaim.stages.living import Living
from slurm_reclaim.stages.view import View


def session(job: int, submitted: int = 1, node: str = "n1") -> Session:
    id = SessionId("lab", job, 2001, submitted)
    return Session(id, "alice", "nb", "", "gpu", "", State.ACTIVE, "", 0.0, node=node)


def test_by_job_and_by_node() -> None:
    living = Living()
    one, two, again = session(7), session(8, node="n2"), session(7, submitted=2)
    for each in (one, two, again):
        living[each.id] = each
    assert list(living.of_job(7)) == [one, again]
    assert list(living.of_node("n1")) == [one, again]
    moved = replace(one, node="n2")
    living[one.id] = moved
    assert list(living.of_node("n1")) == [again]
    assert list(living.of_node("n2")) == [moved, two]
    assert living.pop(one.id, None) == moved
    assert living.pop(one.id, None) is None
    assert list(living.of_job(7)) == [again]
    assert list(living.of_node("n2")) == [two]
    living.pop(again.id)
    assert (list(living.of_job(7)), list(living.of_node("n1"))) == ([], [])
    with pytest.raises(KeyError):
        living.pop(again.id)


def test_by_state() -> None:
    living = Living()
    one, two = session(7), session(8)
    for each in (one, two):
        living[each.id] = each
    living[one.id] = replace(one, state=State.WARNED, node="n3")
    assert [s.id.job_id for s in living.of_state(State.ACTIVE)] == [8]
    assert [s.node for s in living.of_state(State.WARNED)] == ["n3"]
    living.pop(one.id)
    assert list(living.of_state(State.WARNED)) == []
    assert list(living.of_state(State.IDLE)) == []


def report(node: str, *restarts: int) -> Report:
    told = tuple(SessionReport(7, 2001, n, Seen.RUNNING) for n in restarts)
    return Report(node, "boot", 0.0, NodeFacts(), told)


def test_the_last_report_of_each_node_counts() -> None:
    view = View(started=0.0)
    view.heard(report("n1", 0), 1.0)
    view.heard(report("n2", 1), 2.0)
    asked = session(7)
    assert [(node, told.restarts) for node, _, told in view.reports_of(asked)] == [
        ("n1", 0), ("n2", 1),
    ]  # fmt: skip
    view.heard(report("n1"), 3.0)
    assert [node for node, _, _ in view.reports_of(asked)] == ["n2"]
    assert view.report_of(replace(asked, restarts=1)) is None, "not its node's word"
    found = view.report_of(replace(asked, restarts=1, node="n2"))
    assert found is not None
    assert found[1].at == 2.0
    view.heard(report("n2", 0, 1), 4.0)
    assert [told.restarts for _, _, told in view.reports_of(asked)] == [0, 1]
    view.heard(report("n2"), 5.0)
    assert list(view.reports_of(asked)) == []
    assert view._of_job == {}
