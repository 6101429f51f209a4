"""Kernel, CRIU, plugin, agent and store of a compute node, as a folder in its place."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_reclaim.checks import agent, criu, kernel, plugin, store
from slurm_reclaim.checks.host import Host, Ran
from slurm_reclaim.checks.result import Check, Verdict
from slurm_reclaim.config.schema import Agent, Bytes, Store
from slurm_reclaim.config.schema import Path as ConfigPath
from slurm_reclaim.errors import StoreUnavailable


class Node:
    """A folder that stands for a compute node; whoever runs the test is its root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.root.chmod(0o755)
        self.host = Host(str(root), root_uid=os.geteuid())

    def file(self, path: str, text: str = "", mode: int = 0o644) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        place.write_text(text)
        place.chmod(mode)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    root = tmp_path / "node"
    root.mkdir()
    return Node(root)


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def verdicts(checks: list[Check]) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in checks}


# kernel


def kernel_files(node: Node, *, bounding: str = "000001ffffffffff") -> None:
    node.file("/proc/self/ns/time")
    node.file("/proc/sys/kernel/ns_last_pid", "300\n")
    node.file("/proc/thread-self/children")
    node.file("/proc/self/status", f"Name:\tx\nCapBnd:\t{bounding}\n")
    node.file("/proc/sys/kernel/io_uring_disabled", "2\n")


def test_a_good_kernel(node: Node) -> None:
    kernel_files(node)
    assert set(verdicts(kernel.judge(node.host, "auto")).values()) == {Verdict.OK}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/proc/self/ns/time", "time namespaces"),
        ("/proc/sys/kernel/ns_last_pid", "ns_last_pid"),
        ("/proc/thread-self/children", "children"),
    ],
)
def test_a_missing_kernel_feature_is_named(node: Node, path: str, name: str) -> None:
    kernel_files(node)
    (node.root / path.lstrip("/")).unlink()
    failed = [c.name for c in kernel.judge(node.host, "auto") if c.verdict is Verdict.FAILED]
    assert failed == [name]


@pytest.mark.parametrize(
    ("bounding", "good"), [("0000010000000000", True), ("000000ffffffffff", False)]
)
def test_a_container_may_withhold_the_capability(node: Node, bounding: str, good: bool) -> None:
    kernel_files(node, bounding=bounding)
    check = by_name(kernel.judge(node.host, "auto"))["CAP_CHECKPOINT_RESTORE"]
    assert (check.verdict is Verdict.OK) is good


@pytest.mark.parametrize(
    ("release", "verdict"),
    [("5.12.9", Verdict.FAILED), ("5.13.0-1", Verdict.OK), ("6.1.0", Verdict.OK),
     ("4.18.0-553.el8", Verdict.FAILED)],
)  # fmt: skip
def test_kernel_versions(
    node: Node, monkeypatch: pytest.MonkeyPatch, release: str, verdict: Verdict
) -> None:
    kernel_files(node)
    monkeypatch.setattr("platform.release", lambda: release)
    assert by_name(kernel.judge(node.host, "auto"))["kernel version"].verdict is verdict


@pytest.mark.parametrize("value", ["0", "1", None])
def test_io_uring_is_better_switched_off(node: Node, value: str | None) -> None:
    kernel_files(node)
    place = node.root / "proc/sys/kernel/io_uring_disabled"
    place.write_text(value) if value else place.unlink()
    for block, words in (("auto", "under a filter"), ("never", "stay blocked")):
        check = by_name(kernel.judge(node.host, block))["io_uring"]
        assert check.verdict is Verdict.WARNING
        assert words in check.what
        assert "io_uring_disabled" in check.hint


# criu


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Version: 4.2.1\nGitID: v4.2.1\n", Verdict.OK),
        ("Version: 4.3\n", Verdict.OK),
        ("Version: 4.2\n", Verdict.FAILED),
        ("Version: 4.1.1\n", Verdict.FAILED),
        ("Version: 3.17.1\n", Verdict.FAILED),
        ("something else", Verdict.FAILED),
    ],
)
def test_the_criu_floor(text: str, verdict: Verdict) -> None:
    check = criu.version(text)
    assert check.verdict is verdict
    if text.startswith("Version") and verdict is Verdict.FAILED:
        assert "CVE-2026-18107" in check.hint


# CRIU 4.2.1 where there is no /dev/net/tun.
TUN = "Error (criu/tun.c:85): tun: Unable to create tun: No such file or directory"


def test_what_criu_check_says() -> None:
    good = Ran(0, "Looks good.\n", f"{TUN}\n")
    # As CRIU 3.17.1 says it on Linux 6.18.
    vdso = "Error (criu/vdso.c:266): vdso: Unexpected rt vDSO area bounds"
    bad = Ran(1, "", f"{TUN}\n{vdso}\nError (criu/crtools.c:259): later\n")
    assert criu.works(good, "criu").verdict is Verdict.OK
    check = criu.works(bad, "criu")
    assert check.verdict is Verdict.FAILED
    assert check.what == vdso
    assert criu.works(Ran(127, "", "setpriv: missing"), "criu").verdict is Verdict.NOT_CHECKED


def test_no_criu(node: Node) -> None:
    (check,) = criu.judge(node.host, "/nowhere/criu")
    assert check.verdict is Verdict.FAILED
    assert "agent.criu" in check.hint


# plugin

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
    failed = [
        c.name for c in plugin.judge(node.host, SLURM, Agent()) if c.verdict is Verdict.FAILED
    ]
    assert failed == [name]


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


# agent


@pytest.fixture
def listening(node: Node) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(node.root / "agent.sock"))
        (node.root / "agent.sock").chmod(0o600)
        server.listen()
        yield server


def agent_verdict(node: Node) -> Verdict:
    (check,) = agent.judge(node.host, "/agent.sock")
    return check.verdict


def test_an_agent_that_listens(node: Node, listening: socket.socket) -> None:
    assert agent_verdict(node) is Verdict.OK


def test_a_socket_that_others_may_use(node: Node, listening: socket.socket) -> None:
    (node.root / "agent.sock").chmod(0o660)
    assert agent_verdict(node) is Verdict.FAILED


def test_a_socket_that_was_left_behind(node: Node, listening: socket.socket) -> None:
    listening.close()
    assert agent_verdict(node) is Verdict.FAILED


def test_no_socket(node: Node) -> None:
    assert agent_verdict(node) is Verdict.FAILED
    node.file("/agent.sock")
    assert agent_verdict(node) is Verdict.FAILED


# store


def unasked(url: str, options: str) -> tuple[float, float]:
    raise AssertionError("no remote place is configured")


MOUNTS = """\
30 22 0:25 / /tmp rw - tmpfs tmpfs rw
31 22 0:40 / /shared rw,relatime shared:1 - nfs4 filer:/export rw,vers=4.2
32 22 0:41 / /with\\040blank rw - xfs /dev/vdb rw
22 1 254:0 / / rw,relatime - ext4 /dev/vda1 rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "verdict"),
    [
        ("/shared/reclaim", "nfs4", Verdict.OK),
        ("/shared", "nfs4", Verdict.OK),
        ("/shared2", "ext4", Verdict.WARNING),
        ("/tmp/x", "tmpfs", Verdict.WARNING),
        ("/with blank/x", "xfs", Verdict.WARNING),
    ],
)
def test_the_kind_of_storage(path: str, kind: str, verdict: Verdict) -> None:
    mount = store.mount_of(MOUNTS, path)
    assert mount is not None
    assert mount.kind == kind
    assert store.kind(mount).verdict is verdict


@pytest.fixture
def settings(node: Node) -> Store:
    (node.root / "store").mkdir(mode=0o700)
    (node.root / "store/.slurm-reclaim-store").touch()
    node.file("/proc/self/mountinfo", MOUNTS)
    return Store(path=ConfigPath("/store"), min_free=Bytes(1))


def test_a_good_store(node: Node, settings: Store) -> None:
    found = verdicts(store.judge(node.host, settings, unasked))
    assert found.pop("store shared") is Verdict.WARNING
    assert found == {
        "store private": Verdict.OK, "store marked": Verdict.OK,
        "store durable": Verdict.OK, "store room": Verdict.OK,
    }  # fmt: skip
    assert os.listdir(node.root / "store") == [".slurm-reclaim-store"]


def test_a_store_that_may_not_be_mounted(node: Node, settings: Store) -> None:
    (node.root / "store/.slurm-reclaim-store").unlink()
    assert verdicts(store.judge(node.host, settings, unasked))["store marked"] is Verdict.FAILED


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o770])
def test_nobody_but_root_may_look_into_it(node: Node, settings: Store, mode: int) -> None:
    (node.root / "store").chmod(mode)
    assert verdicts(store.judge(node.host, settings, unasked))["store private"] is Verdict.FAILED


def test_no_store(node: Node) -> None:
    (check,) = store.judge(node.host, Store(path=ConfigPath("/store")), unasked)
    assert check.verdict is Verdict.FAILED
    node.file("/store")
    assert verdicts(store.judge(node.host, Store(path=ConfigPath("/store")), unasked)) == {
        "store": Verdict.FAILED
    }


def test_too_little_room(node: Node, settings: Store) -> None:
    greedy = Store(path=settings.path, min_free=Bytes(1 << 60))
    assert verdicts(store.judge(node.host, greedy, unasked))["store room"] is Verdict.FAILED


def test_a_store_that_can_not_be_synced(
    node: Node, settings: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    check = by_name(store.judge(node.host, settings, unasked))["store durable"]
    assert check.verdict is Verdict.FAILED
    assert "Input/output error" in check.what


def test_a_remote_place_is_looked_at_and_its_refusal_is_the_hint(node: Node) -> None:
    settings = Store(remote="s3://b/p", remote_options=ConfigPath("/etc/r.json"))

    def raising(error: Exception) -> store.Look:
        def look(url: str, options: str) -> tuple[float, float]:
            assert (url, options) == ("s3://b/p", "/etc/r.json")
            raise error

        return look

    assert store.remote(Store(), unasked) == []
    assert verdicts(store.remote(settings, lambda *_: (0.1, 2.0))) == {"store remote": Verdict.OK}
    late = by_name(store.remote(settings, lambda *_: (0.1, -400.0)))["store remote clock"]
    assert late.verdict is Verdict.WARNING
    assert "400 s behind" in late.what
    refused = StoreUnavailable("refused (403) to store", hint="see the keys")
    (check,) = store.remote(settings, raising(refused))
    assert (check.verdict, check.hint) == (Verdict.FAILED, "see the keys")
    (check,) = store.remote(settings, raising(ValueError("/etc/r.json is 0644")))
    assert (check.verdict, check.name) == (Verdict.FAILED, "store remote options")


def test_with_a_remote_place_a_local_disk_is_right() -> None:
    assert store.kind(store.Mount("/", "ext4", "/dev/a"), "s3://b").verdict is Verdict.OK
    assert store.kind(store.Mount("/", "tmpfs", "t"), "s3://b").verdict is Verdict.WARNING
