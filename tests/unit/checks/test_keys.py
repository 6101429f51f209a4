"""The store's keys as `reclaim check` sees them: on this host and over all agents."""

from __future__ import annotations

import os

import pytest

from slurm_reclaim.checks import keys
from slurm_reclaim.checks.result import Verdict
from slurm_reclaim.config.schema import Path as ConfigPath
from slurm_reclaim.config.schema import Store
from slurm_reclaim.model.order import NodeFacts
from slurm_reclaim.model.status import NodeStatus
from slurm_reclaim.model.storekey import StoreKey
from tests.unit.checks.node_folder import Node, by_name, verdicts

FILE = "/etc/slurm-reclaim/store.keys"
STORE = Store(keys=ConfigPath(FILE))
ONE, TWO = StoreKey(1000.0, b"a" * 32), StoreKey(2000.0, b"b" * 32)


def written(node: Node, *lines: str, mode: int = 0o600) -> None:
    node.file(FILE, "".join(f"{line}\n" for line in lines), mode)


def test_good_keys(node: Node) -> None:
    written(node, ONE.line(), TWO.line())
    found = by_name(keys.judge(node.host, STORE))
    assert {c.verdict for c in found.values()} == {Verdict.OK}
    assert TWO.id in found["store keys"].what
    assert not any("6161" in c.what or "6262" in c.what for c in found.values())


def test_no_keys(node: Node) -> None:
    (found,) = keys.judge(node.host, STORE)
    assert (found.verdict, "reclaim key new" in found.hint) == (Verdict.FAILED, True)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_keys_that_others_see(node: Node, mode: int) -> None:
    written(node, ONE.line(), mode=mode)
    assert verdicts(keys.judge(node.host, STORE))["store keys private"] is Verdict.FAILED


def test_keys_that_others_could_replace(node: Node) -> None:
    written(node, ONE.line())
    node.host.place("/etc/slurm-reclaim").chmod(0o777)
    assert verdicts(keys.judge(node.host, STORE))["store keys private"] is Verdict.FAILED


def test_keys_that_are_none(node: Node) -> None:
    written(node, ONE.line()[:-1])
    found = by_name(keys.judge(node.host, STORE))["store keys"]
    assert (found.verdict, "line 1" in found.what) == (Verdict.FAILED, True)


def agent(name: str, *ids: str, age: float = 1.0) -> NodeStatus:
    return NodeStatus(name, age, facts=NodeFacts(store_keys=ids))


def everywhere(node: Node, *agents: NodeStatus) -> tuple[Verdict, str]:
    found = keys.everywhere(agents, node.host, STORE, 60.0)
    return found.verdict, found.what


def test_the_same_keys_everywhere(node: Node) -> None:
    order = (agent("n1", "a", "b"), agent("n2", "b", "a"), agent("n3", age=999))
    assert everywhere(node, *order)[0] is Verdict.OK
    verdict, what = everywhere(node, *order, agent("n4", "a"), agent("n5"))
    assert verdict is Verdict.FAILED
    assert "n4 has a; n5 has none" in what
    assert "n1" not in what
    assert everywhere(node, agent("n1"), agent("n2")) == (Verdict.FAILED, "no node has any")
    # no key is nothing that others could be compared with, however many have none
    _, what = everywhere(node, agent("n1"), agent("n2", "a"), agent("n3"))
    assert what == "most nodes have a; n1 has none; n3 has none"
    assert everywhere(node)[0] is Verdict.NOT_CHECKED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root compares with its own")
def test_compared_with_the_keys_here(node: Node) -> None:
    written(node, ONE.line())
    assert everywhere(node, agent("n1", ONE.id))[0] is Verdict.OK
    verdict, what = everywhere(node, agent("n1", TWO.id), agent("n2", TWO.id))
    assert (verdict, "this host has" in what) == (Verdict.FAILED, True)
