"""What the plugin has left for an agent that was not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_reclaim.adapters.store.records import SessionRecords
from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon.agent import Agent
from slurm_reclaim.daemon.node_sessions import NodeSessions


@pytest.mark.parametrize(
    ("waits", "kind", "words"),
    [
        ("0", "job-started-unmanaged", "as if slurm-reclaim weren't there: no answer"),
        ("1", "start-waits", "the job waits for its restore: no answer"),
    ],
)
def test_a_job_that_waits_is_not_said_to_have_started(
    tmp_path: Path, waits: str, kind: str, words: str
) -> None:
    config = Config()
    config = replace(config, agent=replace(config.agent, run=str(tmp_path)))
    records: Any = SessionRecords(tmp_path / "sessions")
    nobody: Any = None
    sessions = NodeSessions(config, "n1", records, nobody)
    agent = Agent(lambda: config, sessions, nobody, nobody, nobody, lambda: None)
    (tmp_path / "missed").mkdir()
    note = tmp_path / "missed/77"
    note.write_text(f"job=77\nuid=2001\noption=on\nproblem=no answer\nwaits={waits}\n")
    agent._take_notes()
    (event,) = sessions.events
    assert (event.kind, event.job_id, event.uid) == (kind, 77, 2001)
    assert words in event.reason
    assert not note.exists()
