"""The traces of tests and benchmarks, judged by the policy with every setting's default: these are
the numbers of docs/proof.md."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from itertools import pairwise
from statistics import mean

import pytest

from slurm_reclaim.adapters.trace import read
from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.sample import Reading, Sample
from slurm_reclaim.model.trace import Entry, Header, Label, Measured
from slurm_reclaim.policy.replay import Replay
from slurm_reclaim.policy.score import Score, score
from tests.traces import DATA, behaviours, generate, sensei, stretch

RECORDED = DATA / "behaviours.jsonl.zst"


def judged(entries: Iterable[Entry]) -> Score:
    replay = Replay(Config(), limited=False).run(entries)
    return score(replay.seats.values(), replay.acts)


@pytest.fixture(scope="module")
def synthetic() -> Score:
    return judged(behaviours.entries())


@pytest.mark.skipif(sensei.path() is None, reason="the notebook trace is not here")
def test_the_month_of_notebooks() -> None:
    """Every tenth session, for time's sake; `make bench` takes all of them."""
    file = sensei.path()
    assert file is not None
    found = sensei.sessions(file)
    assert len(found) == 337
    total = judged(sensei.entries(found[::10], "a tenth")).total
    assert (total.wrong, total.alarms) == (0, 0)
    assert (total.share or 0) > 0.92
    assert (total.regret or 1) < 0.13


def test_a_generated_month_is_like_the_real_one() -> None:
    found = generate.sessions(200)
    gaps = [(b.begin - a.end) / 60 for runs in found for a, b in pairwise(runs)]
    gaps.sort()
    for share, minutes in ((0.5, 3), (0.75, 7), (0.9, 35), (0.95, 195), (0.98, 1278)):
        assert gaps[round(share * len(gaps))] == pytest.approx(minutes, rel=0.25, abs=1)
    assert mean(gaps) == pytest.approx(172, rel=0.15)
    assert sum(max(0.0, gap - 60) for gap in gaps) / sum(gaps) == pytest.approx(0.944, abs=0.015)
    total = judged(sensei.entries(found[:8], "generated")).total
    assert total.wrong == 0
    assert (total.reached or 0) > 0.99


def test_the_same_seed_gives_the_same_trace() -> None:
    plays = {name: behaviours.PLAYS[name] for name in ("reading", "training-with-checkpoints")}
    one, two, other = (list(behaviours.entries(seed=seed, plays=plays)) for seed in (1, 1, 2))
    assert one == two
    assert one != other


def test_there_are_enough_behaviours() -> None:
    assert len(behaviours.PLAYS) >= 25
    for name in ("abandoned", "reading", "thinking-between-cells", "long-silent-cell", "thread",
                 "child", "nohup", "download", "tensorboard-left-open", "dead-ssh",
                 "tmux-detached", "debugger-at-prompt", "input-waiting", "data-loader",
                 "gpu-burst-each-40s"):  # fmt: skip
        assert name in behaviours.PLAYS


def test_no_synthetic_behaviour_is_hibernated_in_use(synthetic: Score) -> None:
    assert synthetic.wrongs == []
    assert synthetic.total.alarms == 0
    assert synthetic.total.hours > 150


def test_what_is_idle_is_found_unless_a_kernel_says_busy(synthetic: Score) -> None:
    never = {n for n, one in synthetic.behaviours.items() if one.reachable and not one.captured}
    assert never == {"input-waiting"}
    rest = [one for name, one in synthetic.behaviours.items() if name not in never]
    assert sum(one.captured for one in rest) / sum(one.reachable for one in rest) > 0.97


def test_the_hard_ones_are_not_known_to_be_told_apart() -> None:
    """docs/proof.md says so; whoever changes this changes that."""
    found = judged(behaviours.entries(plays=behaviours.HARD))
    assert {name for _, name in found.wrongs} == set(behaviours.HARD)


@pytest.mark.skipif(not RECORDED.is_file(), reason="no recorded trace in tests/data")
def test_recorded_behaviours() -> None:
    assert RECORDED.stat().st_size < 300_000
    found = judged(read(str(RECORDED)))
    assert len(found.behaviours) >= 36
    assert all(name in found.behaviours for name in (
        "abandoned", "reading", "thinking-between-cells", "long-silent-cell", "thread", "child",
        "nohup", "download", "tensorboard-left-open", "dead-ssh", "tmux-detached", "tmux-redraws",
        "debugger-at-prompt", "input-waiting", "data-loader", "gpu-burst-each-40s",
        "gpu-not-readable",
    ))  # fmt: skip
    assert found.wrongs == []
    assert found.total.alarms == 0
    never = {n for n, one in found.behaviours.items() if one.reachable and not one.captured}
    assert never == {"input-waiting"}


def test_the_shipped_trace_is_what_the_recording_is_stretched_to() -> None:
    recording = read(str(DATA / "recording.jsonl.zst"))
    assert list(read(str(RECORDED))) == list(stretch.entries(recording))


def pieces_of(values: list[float], seconds: float = 2.0) -> list[Entry]:
    samples = [
        Measured("s", Sample(100.0 + seconds * n, seconds, {"cpu": Reading(v), "gpu": Reading(v)}))
        for n, v in enumerate(values, 1)
    ]
    return [Header("lab"), Label("s", 100.0, 999.0, "s", True), *samples]


def test_coarser_samples_average_rates_and_keep_the_highest_of_the_rest() -> None:
    piece = stretch.pieces(pieces_of([0.0, 4.0, 0.0, 0.0, 0.0, 8.0]), step=4.0)["s"]
    assert [sample.readings["cpu"].value for sample in piece.samples] == [2.0, 0.0, 4.0]
    assert [sample.readings["gpu"].value for sample in piece.samples] == [4.0, 0.0, 8.0]
    assert [sample.seconds for sample in piece.samples] == [4.0] * 3


def test_uses_that_were_recorded_move_along() -> None:
    samples = (
        Sample(102.0, 2.0, {"terminal": Reading(1.0, last=101.0)}),
        Sample(104.0, 2.0, {"terminal": Reading(0.0, last=101.0)}),
    )
    piece = stretch.Piece("s", True, 100.0, samples)
    scene = stretch.Scene("s", "s", random.Random(1), step=2.0)
    signals = stretch.repeated(scene, piece)
    lasts = [
        reading.last - scene.at
        for at in (2.0, 4.0, 6.0, 8.0)
        if isinstance(reading := signals(scene.chance, at)["terminal"], Reading)
    ]
    assert lasts == [1.0, 1.0, 5.0, 5.0]


def test_every_recorded_behaviour_says_what_it_is() -> None:
    for path in (DATA.parent / "cluster/behaviours").iterdir():
        if path.name in (
            "session.sh",
            "notebook.sh",
            "tools.sh",
            "typist.py",
            "burn.py",
            "owner.py",
            "README.md",
        ):
            continue
        assert re.search(r"^# label: (idle|active)$", path.read_text(), re.M), path.name
