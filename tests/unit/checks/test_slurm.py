from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_reclaim.checks import slurm
from slurm_reclaim.checks.host import Host, Ran
from slurm_reclaim.checks.result import Check, Verdict
from slurm_reclaim.config.schema import Config, Controller

RECORDED = sorted((Path(__file__).parent / "recorded").glob("scontrol-show-config-*.txt"))


@dataclass
class Recorded(Host):
    """Answers commands from a table, by the last words of the command."""

    answers: dict[str, Ran] = field(default_factory=dict)

    def run(self, argv: object, *, timeout: float = 30) -> Ran:
        line = " ".join(argv)  # type: ignore[arg-type]
        return next(
            (answer for words, answer in self.answers.items() if words in line),
            Ran(127, "", f"{line}: not found"),
        )


def judge(text: str) -> dict[str, Check]:
    checks, _ = slurm.read(Recorded(answers={"show config": Ran(0, text)}), Config())
    return {check.name: check for check in checks}


def changed(text: str, key: str, value: str) -> str:
    lines = [
        f"{key} = {value}" if line.split("=")[0].strip() == key else line
        for line in text.splitlines()
    ]
    assert lines != text.splitlines(), f"{key} is not in the recording"
    return "\n".join(lines)


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_a_recorded_good_cluster_has_no_failures(path: Path) -> None:
    checks = judge(path.read_text())
    assert len(checks) > 10
    assert {n: c.what for n, c in checks.items() if c.verdict is Verdict.FAILED} == {}
    assert checks["slurm version"].what == path.stem.rpartition("-")[2]


def test_there_is_a_recording() -> None:
    assert RECORDED


@pytest.mark.parametrize(
    ("key", "value", "name", "verdict"),
    [
        ("SLURM_VERSION", "22.05.8", "slurm version", Verdict.WARNING),
        ("SLURM_VERSION", "23.11.0", "slurm version", Verdict.OK),
        ("JobRequeue", "0", "JobRequeue", Verdict.FAILED),
        ("AuthType", "auth/slurm", "AuthType", Verdict.FAILED),
        ("ProctrackType", "proctrack/linuxproc", "ProctrackType", Verdict.FAILED),
        ("TaskPlugin", "task/affinity", "TaskPlugin", Verdict.WARNING),
        ("TaskPlugin", "(null)", "TaskPlugin", Verdict.WARNING),
        ("SelectTypeParameters", "CR_CORE", "SelectTypeParameters", Verdict.WARNING),
        ("SelectTypeParameters", "CR_CPU_MEMORY", "SelectTypeParameters", Verdict.OK),
        ("JobFileAppend", "0", "JobFileAppend", Verdict.OK),
        ("KillWait", "600 sec", "KillWait", Verdict.WARNING),
        ("MinJobAge", "10 sec", "MinJobAge", Verdict.FAILED),
        ("MinJobAge", "0 sec", "MinJobAge", Verdict.OK),
        ("RequeueExit", "1,2", "RequeueExit", Verdict.WARNING),
        ("RequeueExitHold", "3", "RequeueExit", Verdict.WARNING),
        ("JobContainerType", "job_container/tmpfs", "JobContainerType", Verdict.OK),
        ("JobContainerType", "job_container/other", "JobContainerType", Verdict.WARNING),
        ("AccountingStorageType", "(null)", "AccountingStorageType", Verdict.WARNING),
        ("ConstrainDevices", "no", "ConstrainDevices", Verdict.WARNING),
        ("ConstrainDevices", "yes", "ConstrainDevices", Verdict.OK),
        ("GresTypes", "craynetwork", "ConstrainDevices", Verdict.OK),
    ],
)
def test_each_setting_is_judged(key: str, value: str, name: str, verdict: Verdict) -> None:
    check = judge(changed(RECORDED[0].read_text(), key, value))[name]
    assert check.verdict is verdict
    assert bool(check.hint) is (verdict is not Verdict.OK)


def test_a_silent_slurmctld_is_one_failure() -> None:
    error = Ran(1, "", "slurm_load_ctl_conf error: Unable to contact slurm controller")
    checks, settings = slurm.read(Recorded(answers={"show config": error}), Config())
    assert [(c.name, c.verdict) for c in checks] == [("slurm answers", Verdict.FAILED)]
    assert "Unable to contact" in checks[0].what
    assert settings == {}


@pytest.mark.parametrize(
    ("out", "verdict"),
    [
        ("Administrator\n", Verdict.OK),
        ("Operator\n", Verdict.FAILED),
        ("None\n", Verdict.FAILED),
        ("", Verdict.FAILED),
    ],
)
def test_the_controllers_account_needs_the_highest_level(out: str, verdict: Verdict) -> None:
    host = Recorded(answers={"show user slurm-reclaim": Ran(0, out)})
    assert slurm.account(host, Config()).verdict is verdict


def test_the_level_of_an_account_that_can_not_be_asked_is_not_known() -> None:
    assert slurm.account(Recorded(), Config()).verdict is Verdict.NOT_CHECKED
    root = Config(controller=Controller(user="root"))
    assert slurm.account(Recorded(), root).verdict is Verdict.OK


def test_values_may_hold_equal_signs_and_blanks() -> None:
    text = "Configuration data as of x\nA                  = a=b, c\nB = (null)\nC = \n"
    assert slurm.parse(text) == {"A": "a=b, c", "B": "", "C": ""}
