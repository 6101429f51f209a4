from __future__ import annotations

import pytest

from slurm_reclaim import __version__
from slurm_reclaim.checks import survey
from slurm_reclaim.checks.result import Check, Verdict
from slurm_reclaim.cli import check
from slurm_reclaim.model.status import Status

from .conftest import Shell
from .stand_in import Controller


def test_check_asks_the_real_way_and_fails_without_slurm(
    controller: Controller, shell: Shell
) -> None:
    controller.answers["GET", "/v1/status"] = [
        Status(__version__, "prod", "cluster", 100.0, 1.0, 2.0)
    ]
    shell.config.write_text(shell.config.read_text() + '[slurm]\nbin = "/nowhere"\n')
    found = shell.json("check", code=1)
    assert found["ok"] is False
    checks = {c["name"]: c for c in found["checks"]}
    assert checks["munge"]["verdict"] == "ok"
    assert checks["controller authenticated"]["verdict"] == "ok"
    assert checks["slurm answers"]["verdict"] == "failed"
    assert checks["slurm answers"]["hint"]


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.WARNING, 0), (Verdict.FAILED, 1)])
def test_only_failures_count(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, verdict: Verdict, code: int
) -> None:
    checks = [
        Check("criu", "criu version", Verdict.OK, "4.2.1"),
        Check("store", "store shared", verdict, "ext4", "use a shared file system"),
    ]
    monkeypatch.setattr(check, "survey", lambda ways: checks)
    result = shell("check")
    assert result.exit_code == code
    assert "store: store shared" in result.stdout
    assert "ext4 -> use a shared file system" in result.stdout
    assert result.stdout.splitlines()[-1] == f"1 ok, 1 {verdict}"
    assert survey.survey is not check.survey
