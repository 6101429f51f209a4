"""`replay`, `score` and `record` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slurm_reclaim.adapters.trace import read, write
from slurm_reclaim.cli.main import reclaim
from slurm_reclaim.cli.record import Recorder
from slurm_reclaim.model.sample import Reading, Sample
from slurm_reclaim.model.trace import Entry, Header, Label, Measured, Recorded, Return, Watched

T = 1_800_000_000.0
GPU = ("gpu", "gpu-memory", "gpu-codec", "gpu-pcie")
REST = dict.fromkeys(("cpu", "io", "network", "terminal", *GPU), Reading(0.0))


def samples(minutes: int) -> list[Entry]:
    return [Measured("s", Sample(T + 60.0 * n, 60.0, REST)) for n in range(1, minutes + 1)]


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Left for two hours, with a return after 70 minutes."""
    path = str(tmp_path / "t.jsonl.zst")
    write(path, [
        Header("lab", complete=True), Watched("s", "alice", tres="cpu=2,gres/gpu=2", started=T),
        Label("s", T, T + 4200, "left", False), Label("s", T + 4200, T + 4800, "work", True),
        Return("s", T + 4200), *samples(80),
    ])  # fmt: skip
    return path


def call(*words: str) -> Result:
    return CliRunner().invoke(reclaim, list(words))


def policy(tmp_path: Path, text: str = "") -> str:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return str(path)


def test_replay_tells_what_would_have_been_done(file: str, tmp_path: Path) -> None:
    said = call("replay", file, "--policy", policy(tmp_path))
    assert said.exit_code == 0
    assert "10m !" in said.stdout
    assert "0.3 GPU-hours" in said.stdout
    assert "1 owners back within 15 minutes" in said.stdout
    assert "idle for 1h (window 45m, idle.window)" in said.stdout


def test_replay_for_programs(file: str, tmp_path: Path) -> None:
    found = json.loads(call("replay", file, "--policy", policy(tmp_path), "--json").stdout)
    assert [act["act"] for act in found["acts"]] == ["warned", "hibernated", "returned"]
    assert found["freed_gpu_hours"] == pytest.approx(1 / 3)
    assert found["surprised"] == 1


def test_the_policy_matters(file: str, tmp_path: Path) -> None:
    longer = policy(tmp_path, '[idle]\nwindow = "2h"\n')
    assert "nothing was hibernated" in call("replay", file, "--policy", longer).stderr
    wrong = policy(tmp_path, '[idle]\nwindov = "2h"\n')
    said = call("replay", file, "--policy", wrong)
    assert (said.exit_code, "window" in said.stderr) == (11, True)


def test_score(file: str) -> None:
    said = call("score", file)
    assert said.exit_code == 0
    assert "0 in 1 session-hours: 0.00 per 1,000 (95 %: 0.00 to" in said.stdout
    found = json.loads(call("score", file, "--json").stdout)
    assert (found["hibernated"], found["regretted"], found["false_positives"]) == (1, 1, 0)
    assert found["behaviours"]["left"]["captured_of_reachable"] == pytest.approx(1.0)


def test_a_false_positive_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "t.jsonl")
    write(path, [Header("lab"), Watched("s"), Label("s", T, T + 9e9, "reading", True),
                 *samples(70)])  # fmt: skip
    said = call("score", path)
    assert "wrong: s (reading)" in said.stderr


def test_what_can_not_be_read_or_scored(tmp_path: Path) -> None:
    path = str(tmp_path / "t.jsonl")
    write(path, [Header("lab"), Watched("s"), *samples(3)])
    said = call("score", path)
    assert (said.exit_code, "has no labels" in said.stderr) == (12, True)
    Path(path).write_text("hello\n")
    said = call("replay", path, "--policy", policy(tmp_path))
    assert (said.exit_code, f"{path}:1:" in said.stderr) == (12, True)
    said = call("record", "--output", path)
    assert (said.exit_code, "is there already" in said.stderr) == (12, True)


def test_a_recording_takes_every_sample_once(tmp_path: Path) -> None:
    recorder, path = Recorder(), str(tmp_path / "t.jsonl")
    one, two = (Measured("s", Sample(T + n, 1.0, REST)) for n in (1, 2))
    parts = [
        Recorded("lab", 1, sessions=(Watched("s"),), samples=(one,)),
        Recorded("lab", 3, sessions=(Watched("s"),), samples=(one, two)),
    ]
    write(path, [Header("lab"), *(e for part in parts for e in recorder._new(part))])
    assert list(read(path)) == [Header("lab"), Watched("s"), one, two]
    assert recorder.summary() == "2 samples of 1 sessions"
