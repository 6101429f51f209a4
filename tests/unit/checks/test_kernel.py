"""Kernel and CRIU of a compute node."""

from __future__ import annotations

import pytest

from slurm_reclaim.checks import criu, kernel
from slurm_reclaim.checks.host import Ran
from slurm_reclaim.checks.result import Verdict
from tests.unit.checks.node_folder import Node, by_name, verdicts


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
