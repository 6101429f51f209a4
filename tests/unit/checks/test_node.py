"""Agent and store of a compute node."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from slurm_reclaim.checks import agent, store
from slurm_reclaim.checks.result import Verdict
from slurm_reclaim.config.schema import Bytes, Store
from slurm_reclaim.config.schema import Path as ConfigPath
from slurm_reclaim.errors import StoreUnavailable
from tests.unit.checks.node_folder import Node, by_name, verdicts


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
