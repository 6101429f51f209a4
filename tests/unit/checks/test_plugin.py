"""The plugin of a compute node, and the programs that it starts."""

from __future__ import annotations

import pytest

from slurm_reclaim.checks import plugin
from slurm_reclaim.checks.result import Verdict
from slurm_reclaim.config.schema import Agent
from slurm_reclaim.config.schema import Path as ConfigPath
from tests.unit.checks.node_folder import Node, by_name, verdicts

SLURM = {
    "PluginDir": "/usr/lib/x/slurm:/usr/lib/slurm",
    "PlugStackConfig": "/etc/slurm/plugstack.conf",
}
PROGRAMS = ("reclaim-init", "reclaim-relay", "reclaim-exec")


def installed(node: Node, line: str = "optional reclaim.so timeout=5") -> None:
    node.file("/etc/slurm/plugstack.conf", "# ours\ninclude plugstack.conf.d/*.conf\n")
    node.file("/etc/slurm/plugstack.conf.d/other.conf", "required spank_pyxis.so\n")
    node.file("/etc/slurm/plugstack.conf.d/slurm-reclaim.conf", line + "\n")
    node.file("/usr/lib/slurm/reclaim.so", mode=0o755)
    for name in PROGRAMS:
        node.file(f"/usr/libexec/slurm-reclaim/{name}", mode=0o755)


def test_an_installed_plugin(node: Node) -> None:
    installed(node)
    checks = by_name(plugin.judge(node.host, SLURM, Agent()))
    assert {c.verdict for c in checks.values()} == {Verdict.OK}
    assert checks["plugin file"].what == "/usr/lib/slurm/reclaim.so"


def test_required_is_a_failure(node: Node) -> None:
    installed(node, "required reclaim.so")
    check = by_name(plugin.judge(node.host, SLURM, Agent()))["plugstack.conf"]
    assert check.verdict is Verdict.FAILED
    assert "drains the node" in check.hint


def test_a_plugin_that_nobody_names(node: Node) -> None:
    installed(node, "# optional reclaim.so")
    assert verdicts(plugin.judge(node.host, SLURM, Agent()))["plugstack.conf"] is Verdict.FAILED


def test_a_plugin_named_twice(node: Node) -> None:
    installed(node)
    node.file("/etc/slurm/plugstack.conf.d/z.conf", "optional /usr/lib/slurm/reclaim.so\n")
    check = by_name(plugin.judge(node.host, SLURM, Agent()))["plugstack.conf"]
    assert check.verdict is Verdict.FAILED
    assert "2 times" in check.what


def test_other_places(node: Node) -> None:
    installed(node, "optional /opt/reclaim.so libexec=/opt/libexec")
    node.file("/opt/reclaim.so", mode=0o755)
    for name in PROGRAMS:
        node.file(f"/opt/libexec/{name}", mode=0o755)
    checks = by_name(plugin.judge(node.host, {}, Agent()))
    assert checks["plugin file"].what == "/opt/reclaim.so"
    assert checks["reclaim-init"].what == "/opt/libexec/reclaim-init"


@pytest.mark.parametrize("name", ["plugin file", "reclaim-init", "reclaim-relay", "reclaim-exec"])
def test_a_missing_file(node: Node, name: str) -> None:
    installed(node)
    path = (
        "usr/lib/slurm/reclaim.so" if name == "plugin file" else f"usr/libexec/slurm-reclaim/{name}"
    )
    (node.root / path).unlink()
    failed = [c for c in plugin.judge(node.host, SLURM, Agent()) if c.verdict is Verdict.FAILED]
    assert [c.name for c in failed] == [name]
    wanted = " PLUGINDIR=/usr/lib/slurm" if name == "plugin file" else ""
    assert failed[0].hint == f"make -C spank install{wanted}"


@pytest.mark.parametrize("path", ["usr/libexec/slurm-reclaim/reclaim-init", "usr/libexec"])
def test_what_root_runs_must_be_roots_up_to_the_top(node: Node, path: str) -> None:
    installed(node)
    (node.root / path).chmod(0o775)
    check = by_name(plugin.judge(node.host, SLURM, Agent()))["reclaim-init"]
    assert check.verdict is Verdict.FAILED
    assert f"can change {node.root / path}" in check.what


@pytest.mark.parametrize(
    ("line", "socket", "verdict"),
    [
        ("optional reclaim.so", "/run/other.sock", Verdict.FAILED),
        ("optional reclaim.so socket=/run/other.sock", "/run/other.sock", Verdict.OK),
        ("optional reclaim.so socket=/run/other.sock", Agent().socket, Verdict.FAILED),
    ],
)
def test_the_plugin_must_be_told_where_the_agent_is(
    node: Node, line: str, socket: str, verdict: Verdict
) -> None:
    installed(node, line)
    agent = Agent(socket=ConfigPath(socket))
    check = by_name(plugin.judge(node.host, SLURM, agent))["plugin finds agent"]
    assert check.verdict is verdict
    assert verdict is Verdict.OK or f"reclaim.so socket={socket}" in check.hint


def test_a_sticky_folder_is_safe(node: Node) -> None:
    installed(node)
    (node.root / "usr/libexec").chmod(0o1777)
    assert by_name(plugin.judge(node.host, SLURM, Agent()))["reclaim-init"].verdict is Verdict.OK


def test_includes_that_go_round_in_circles_end(node: Node) -> None:
    node.file("/etc/slurm/plugstack.conf", "include plugstack.conf\noptional reclaim.so\n")
    assert plugin.judge(node.host, SLURM, Agent())
