"""MUNGE, controller and all nodes as the controller knows them; and the whole survey."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from slurm_reclaim.checks import control, nodes, survey
from slurm_reclaim.checks.host import Host, Ran
from slurm_reclaim.checks.result import Check, Verdict
from slurm_reclaim.cli.check import channels as real
from slurm_reclaim.config.load import digest, load_with_origins
from slurm_reclaim.config.schema import Config
from slurm_reclaim.errors import (
    AuthUnavailable,
    ControllerUnavailable,
    NotPermitted,
    ReclaimError,
)
from slurm_reclaim.model.checkpoint import GpuCard
from slurm_reclaim.model.order import NodeFacts
from slurm_reclaim.model.status import NodeStatus, Status

CONFIG = Config()
GOOD = NodeFacts(
    criu="4.2.1", criu_ok=True, plugin_seen=True, store_ok=True, version="1.0",
    config_digest=digest(CONFIG),
)  # fmt: skip
STATUS = Status("1.0", "prod", "cluster", now=100.0, started=1.0, slurm_age=3.0)


@dataclass
class Opened:
    payload: bytes
    uid: int


@dataclass
class StandInMunge:
    uid: int = 1000
    error: ReclaimError | None = None

    def encode(self, payload: bytes) -> str:
        if self.error:
            raise self.error
        return payload.decode()

    def decode(self, credential: str) -> Opened:
        return Opened(credential.encode(), self.uid)


def verdicts(checks: list[Check]) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in checks}


def judge(answer: Status | ReclaimError, munge: StandInMunge | None = None) -> dict[str, Verdict]:
    def ask() -> Status:
        if isinstance(answer, ReclaimError):
            raise answer
        return answer

    checks, status = control.judge(munge or StandInMunge(), ask, 1000, CONFIG, "1.0")
    assert status == (answer if isinstance(answer, Status) and not munge else None)
    return verdicts(checks)


def test_a_good_controller() -> None:
    assert set(judge(STATUS).values()) == {Verdict.OK}


@pytest.mark.parametrize(
    ("change", "name", "verdict"),
    [
        ({"version": "0.9"}, "controller version", Verdict.FAILED),
        ({"slurm_age": -1.0}, "controller sees Slurm", Verdict.FAILED),
        ({"slurm_age": 500.0}, "controller sees Slurm", Verdict.FAILED),
        ({"slurm_problem": "timed out"}, "controller sees Slurm", Verdict.FAILED),
        ({"mode": "off"}, "mode", Verdict.WARNING),
    ],
)
def test_what_the_controller_says_of_itself(
    change: dict[str, object], name: str, verdict: Verdict
) -> None:
    found = judge(replace(STATUS, **change))  # type: ignore[arg-type]
    assert found[name] is verdict
    assert list(found.values()).count(Verdict.OK) == len(found) - 1


def test_no_munge_means_that_the_controller_was_not_checked() -> None:
    assert judge(STATUS, StandInMunge(error=AuthUnavailable("no munged"))) == {
        "munge": Verdict.FAILED, "controller reachable": Verdict.NOT_CHECKED,
    }  # fmt: skip
    assert judge(STATUS, StandInMunge(uid=5))["munge"] is Verdict.FAILED


def test_reachable_and_authenticated_are_two_things() -> None:
    assert judge(ControllerUnavailable("no route"))["controller reachable"] is Verdict.FAILED
    found = judge(AuthUnavailable("signed by uid 4242"))
    assert found["controller reachable"] is Verdict.OK
    assert found["controller authenticated"] is Verdict.FAILED


def fleet(**facts: object) -> list[NodeStatus]:
    """Five nodes; the last two have these facts."""
    odd = replace(GOOD, **facts)  # type: ignore[arg-type]
    return [
        NodeStatus(f"n{i}", age=5.0, states=("idle",), facts=GOOD if i < 4 else odd)
        for i in range(1, 6)
    ]


def test_a_good_fleet() -> None:
    assert set(verdicts(nodes.judge(fleet(), CONFIG, "1.0")).values()) == {Verdict.OK}


@pytest.mark.parametrize(
    ("facts", "name", "words"),
    [
        (
            {"plugin_problem": "it is not named", "plugin_seen": False},
            "plugin on every node",
            "not named",
        ),
        ({"criu_ok": False, "criu_problem": "CRIU 4.1 is old"}, "criu on every node", "4.1 is old"),
        ({"criu_ok": False, "criu": ""}, "criu on every node", "CRIU is missing"),
        ({"store_ok": False, "store_problem": "read-only"}, "store on every node", "read-only"),
        ({"version": "0.9"}, "same version everywhere", "has 0.9"),
        ({"config_digest": "abc"}, "same configuration everywhere", "has abc"),
    ],
)
def test_nodes_with_a_problem_are_named_together(
    facts: dict[str, object], name: str, words: str
) -> None:
    checks = nodes.judge(fleet(**facts), CONFIG, "1.0")
    (failed,) = [c for c in checks if c.verdict is Verdict.FAILED]
    assert failed.name == name
    assert failed.what.startswith("n[4-5]: ")
    assert words in failed.what


CARD = GpuCard("GPU-a", "A100", 1 << 30)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"gpu_driver": "580.65.06"}, ""),
        (
            {"gpu_driver": "580.65.06", "gpu_problem": "no cuda-bindings"},
            "n[4-5]: no cuda-bindings",
        ),
        ({"gpu_driver": "570.124.06"}, "575.57.08 mends that"),
        ({"gpus": (), "gpu_problem": "NVML: driver not loaded"}, "NVML: driver not loaded"),
    ],
)
def test_what_gpu_nodes_can_is_a_warning_at_most(facts: dict[str, object], words: str) -> None:
    found = nodes.judge(fleet(**{"gpus": (CARD,), **facts}), CONFIG, "1.0")
    check = next(c for c in found if c.name == "CUDA checkpoints on GPU nodes")
    assert check.verdict is (Verdict.WARNING if words else Verdict.OK)
    assert (words or ", driver 580.65.06") in check.what


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ("neither the Python package cuda-bindings nor /x/cuda-checkpoint is installed", True),
        ("nvidia-ml-py is not installed", True),
        ("NVML: driver not loaded", False),
    ],
)
def test_what_is_not_installed_comes_with_the_command(problem: str, told: bool) -> None:
    found = nodes.judge(fleet(gpus=(CARD,), gpu_problem=problem), CONFIG, "1.0")
    check = next(c for c in found if c.name == "CUDA checkpoints on GPU nodes")
    assert ("pip install 'slurm-reclaim[gpu,cuda]'" in check.hint) is told


def test_drivers_that_differ_are_named_and_nodes_without_gpus_pass() -> None:
    one, other, *_ = fleet()
    theirs = replace(one.facts, gpus=(CARD,), gpu_driver="580.65.06")
    ours = replace(theirs, gpu_driver="590.44.01")
    both = [replace(one, name="n1", facts=theirs), replace(other, name="n2", facts=ours)]
    found = nodes.judge(both, CONFIG, "1.0")
    check = next(c for c in found if c.name == "CUDA checkpoints on GPU nodes")
    assert "n[1-2]: drivers differ: 580.65.06, 590.44.01" in check.what
    assert not [c for c in nodes.judge(fleet(), CONFIG, "1.0") if "CUDA" in c.name]


def test_silent_agents_are_failures_unless_the_node_is_away() -> None:
    silent = [
        NodeStatus("n6", age=-1.0, states=("idle",)),
        NodeStatus("n7", age=9999.0, states=("mixed",)),
    ]
    away = [NodeStatus("n8", age=-1.0, states=("DOWN", "drain"))]
    (first, *_) = nodes.judge([*fleet(), *silent, *away], CONFIG, "1.0")
    assert first.verdict is Verdict.FAILED
    assert "5 of 8 report; silent: n[6-7]" in first.what
    (first, *_) = nodes.judge([*fleet(), *away], CONFIG, "1.0")
    assert first.verdict is Verdict.OK
    assert "n8" in first.what


def test_without_any_report_nothing_is_said_of_the_nodes() -> None:
    found = verdicts(nodes.judge([], CONFIG, "1.0"))
    assert found.pop("agent on every node") is Verdict.FAILED
    assert set(found.values()) == {Verdict.NOT_CHECKED}


class Elsewhere(Host):
    """Neither root nor on a cluster."""

    @property
    def uid(self) -> int:
        return 1000

    def run(self, argv: object, *, timeout: float = 30) -> Ran:
        return Ran(127, "", "not found")


def survey_with(path: Path, answer: Status | ReclaimError = STATUS) -> list[Check]:
    def ask() -> Status:
        if isinstance(answer, ReclaimError):
            raise answer
        return answer

    ways = survey.Ways(
        host=Elsewhere(),
        load=lambda: load_with_origins(str(path)),
        ask=ask,
        codec=StandInMunge(),
        channels=real(),
        remote=lambda url, options: (0.0, 0.0),
        version="1.0",
    )
    return survey.survey(ways)


def test_a_user_is_told_what_was_not_checked(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("")
    found = {c.name: c for c in survey_with(tmp_path / "x.toml")}
    assert found["this node"].verdict is Verdict.NOT_CHECKED
    assert "root" in found["this node"].hint
    assert found["all nodes"].verdict is Verdict.NOT_CHECKED
    assert found["slurm answers"].verdict is Verdict.FAILED
    assert found["adopt rules"].verdict is Verdict.WARNING
    refused = {c.name: c for c in survey_with(tmp_path / "x.toml", NotPermitted("no"))}
    assert refused["all nodes"].verdict is Verdict.NOT_CHECKED


def test_mistakes_in_the_configuration_come_first_and_alone(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("a = 1\nb = 2\n")
    checks = survey_with(tmp_path / "x.toml")
    assert [c.verdict for c in checks] == [Verdict.FAILED, Verdict.FAILED, Verdict.NOT_CHECKED]
