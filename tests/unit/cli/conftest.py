from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from slurm_reclaim.cli import wait
from slurm_reclaim.cli.app import App
from slurm_reclaim.cli.main import reclaim
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.session import Session

from .stand_in import Controller, StandInMunge


def session(job: int = 12, state: State = State.ACTIVE, **changes: Any) -> Session:
    values: dict[str, Any] = {
        "id": SessionId("cluster", job, 2001, 1700000000),
        "user": "alice",
        "name": "spawner-jupyterhub",
        "account": "physics",
        "partition": "gpu",
        "qos": "normal",
        "state": state,
        "reason": "the owner works",
        "since": 1700000100.0,
        "node": "n1",
    }
    return Session(**{**values, **changes})


@dataclass
class Shell:
    """Runs `reclaim` in this process against the stand-in controller."""

    config: Path
    munge: StandInMunge = field(default_factory=StandInMunge)

    def __call__(self, *args: str) -> Result:
        app = App(codec=lambda: self.munge)
        arguments = ["--config", str(self.config), *args]
        return CliRunner().invoke(reclaim, arguments, obj=app)

    def json(self, *args: str, code: int = 0) -> Any:
        result = self(*args, "--json")
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)


@pytest.fixture
def controller() -> Iterator[Controller]:
    controller = Controller()
    controller.start()
    yield controller
    controller.stop()


@pytest.fixture
def shell(controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr(wait, "PAUSE", 0.01)
    monkeypatch.setattr(wait, "PATIENCE", 0.2)
    path = tmp_path / "reclaim.toml"
    path.write_text(f'[controller]\nhost = "127.0.0.1"\nport = {controller.port}\nuser = "root"\n')
    return Shell(path)
